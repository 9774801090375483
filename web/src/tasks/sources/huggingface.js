/**
 * Read a folder of the Hugging Face Hub: the configurations of the model, its processor and its tokenizer. The same definitions as
 * `edge_infer.tasks.sources.huggingface`, which names the rules' source.
 */

import { EdgeInferError } from "../../errors.js";
import { listed } from "../words.js";
import { soundSteps } from "./feature-extractors.js";
import { readAny, readFields } from "./fields.js";
import { made, outputOf } from "./found.js";
import { imageSteps, isTrue, processorType } from "./image-processors.js";
import { ImageInput, isImage } from "./images.js";
import { findTimm } from "./timm.js";

/** @typedef {import("./fields.js").Fields} Fields */
/** @typedef {import("./found.js").Facts} Facts */
/** @typedef {import("./found.js").Found} Found */
/** @typedef {import("./images.js").StepJson} StepJson */
/** @typedef {Record<string, Uint8Array<ArrayBuffer>>} Files */

const SOURCE = "huggingface";
const SENTENCES = "sentence-transformers";
/** The files of a folder that are read, besides `config.json`. */
export const FILES = [
  "1_Pooling/config.json",
  "config_sentence_transformers.json",
  "modules.json",
  "preprocessor_config.json",
  "sentence_bert_config.json",
  "special_tokens_map.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "vocab.json",
];
const CTC = "automatic-speech-recognition";
/** The task of a class of transformers, by how its name ends. @type {Record<string, string>} */
const ENDINGS = {
  ForImageClassification: "image-classification",
  ForImageClassificationWithTeacher: "image-classification",
  ForObjectDetection: "object-detection",
  ForSemanticSegmentation: "image-segmentation",
  ForDepthEstimation: "depth-estimation",
  ForSequenceClassification: "text-classification",
  ForTokenClassification: "token-classification",
  ForQuestionAnswering: "question-answering",
  ForMaskedLM: "fill-mask",
  ForAudioClassification: "audio-classification",
  ForCTC: CTC,
};
/** What a model for one task can be used for too, where that is asked for. @type {Record<string, string[]>} */
const ALSO = { "text-classification": ["zero-shot-classification", "text-ranking"], "text-ranking": ["text-classification"] };
/** Detectors whose classes are on their own, with no class for nothing; others have the last one for that. */
const SIGMOID_DETECTORS = ["conditional_detr", "deformable_detr", "dab-detr", "rt_detr", "rt_detr_v2", "d_fine"];
/** Models whose positions begin behind the id of padding, so that two of them hold no token. */
const SHIFTED = ["roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "bertweet", "xlm-roberta-xl", "data2vec-text"];
/** @type {Record<string, string>} */
const POOLING = { cls: "first", mean: "mean", max: "max", lasttoken: "last" };
/** @type {Record<string, string>} */
const POOLING_FLAGS = { cls_token: "first", mean_tokens: "mean", max_tokens: "max", lasttoken: "last" };
/** Outputs that are a vector of each token, and those that are the vector of the text: `text_embeds` is that of CLIP. */
const TOKEN_VECTORS = ["last_hidden_state", "token_embeddings"];
const TEXT_VECTORS = ["sentence_embedding", "text_embeds"];
const [IDS, MASK, TYPES] = ["input_ids", "attention_mask", "token_type_ids"];
/** A `model_max_length` above this stands for none (transformers writes 1e30). */
const NO_LENGTH = 10 ** 6;
const OTHERWISE = "--preprocess FILE.json";
const NO_PROCESSOR = "the folder has no preprocessor_config.json";
const DOWNLOAD = "download it, beside config.json";

/**
 * @param {Files} files Those of `FILES` that the folder has, and `config.json`.
 * @param {Facts} facts What the model takes and gives.
 * @param {string} [task] The task that is wanted; what the files say unless given.
 * @returns {Found | null} The definition; null where the files are another tool's.
 * @throws {EdgeInferError} `bundle_error`: a file is damaged. `input_error`: the model is for another task. `unsupported`: the files ask for
 *   what no step does; the message names it.
 */
export function findHub(files, facts, task) {
  const config = readFields(files["config.json"], "config.json");
  const ofTimm = findTimm(config, facts);
  if (ofTimm) return checkTask(ofTimm, task);
  if (!config.has("architectures") && !config.has("model_type")) return null;
  const folder = new Folder(files, config, facts);
  const own = folder.task();
  if (own === null) return null;
  if (task !== undefined && task !== own && !ALSO[own]?.includes(task)) throw otherTask(own, task);
  return folder.found(task ?? own);
}

/** @param {Found} found @param {string | undefined} task @returns {Found} */
function checkTask(found, task) {
  if (task !== undefined && task !== found.task) throw otherTask(found.task, task);
  return found;
}

/** The files of a folder, and the model between. */
class Folder {
  /** @param {Files} files @param {Fields} config @param {Facts} facts */
  constructor(files, config, facts) {
    this.files = files;
    this.config = config;
    this.facts = facts;
    this.inputs = new Map(facts.inputs.map((spec) => [spec.name, spec]));
    this.labels = config.labels("id2label");
  }

  /** @returns {string | null} The task that the name of the model's class says. */
  task() {
    const [name = ""] = this.config.texts("architectures");
    const takesText = this.inputs.has(IDS);
    const ending = Object.keys(ENDINGS).find((one) => name.endsWith(one));
    if (ending) {
      const task = ENDINGS[ending];
      if (task !== "text-classification") return task;
      if (!takesText && this.processor("audio")) return "audio-classification";
      return this.config.has("sentence_transformers") ? "text-ranking" : task;
    }
    if (!/(Model|Encoder)$/.test(name) && name.includes("For")) {
      throw unsupported(
        `\`${name}\` of config.json is not supported; supported are classes that end in ${listed(Object.keys(ENDINGS).sort())}`,
        "say what the steps are: --task NAME --preprocess FILE.json",
      );
    }
    const takesImage = this.facts.inputs.some(isImage);
    if (!takesText) return takesImage ? "image-feature-extraction" : null;
    if (takesImage) {
      throw unsupported(
        `\`${name || "the model"}\` takes images and texts at once, which no task does`,
        "export its two parts on their own, such as CLIPVisionModelWithProjection and CLIPTextModelWithProjection",
      );
    }
    const givesVectors = this.facts.outputs.some((spec) => [...TEXT_VECTORS, ...TOKEN_VECTORS].includes(spec.name));
    return givesVectors || this.facts.outputs[0].shape.length === 3 ? "feature-extraction" : null;
  }

  /** @param {string} task @returns {Found} */
  found(task) {
    if (task === "audio-classification" || task === CTC) return this.sounds(task);
    return this.inputs.has(IDS) ? this.texts(task) : this.images(task);
  }

  /** @param {string} task @returns {Found} */
  images(task) {
    const image = this.facts.inputs.find(isImage) ?? this.facts.inputs[0];
    const config = this.processor("image");
    if (!config) throw unsupported(NO_PROCESSOR, DOWNLOAD);
    const inputs = { [image.name]: imageSteps(config, new ImageInput(image)) };
    for (const [name, { shape }] of this.inputs) {
      if (name === "pixel_mask") {
        // Which pixels of a batch are not padding: all, of one image.
        const count = shape.reduce((/** @type {number} */ product, dim) => product * (typeof dim === "number" ? dim : 1), 1);
        inputs[name] = [{ step: "tensor.constant", values: new Array(count).fill(1) }];
      } else if (name !== image.name) {
        throw unsupported(`no step makes the input \`${name}\``, OTHERWISE);
      }
    }
    return made(task, SOURCE, inputs, this.afterImage(task), this.labels);
  }

  /** @param {string} task @returns {StepJson[]} */
  afterImage(task) {
    if (task === "image-classification") return this.classes(5);
    if (task === "object-detection") {
      const isSigmoid = SIGMOID_DETECTORS.includes(this.config.text("model_type"));
      const decode = {
        step: "post.boxes",
        format: "decoded",
        tensors: { boxes: this.output("pred_boxes"), scores: this.output("logits") },
        order: "cxcywh",
        unit: "ratio",
        activation: isSigmoid ? "sigmoid" : "softmax",
        background: isSigmoid ? undefined : "last",
      };
      return [decode, { step: "post.detections" }];
    }
    if (task === "depth-estimation") return [{ step: "post.depth", tensor: this.tensor("predicted_depth") }];
    if (task !== "image-segmentation") return [{ step: "post.tensor", tensor: this.tensor("image_embeds", "last_hidden_state", "pooler_output") }];
    const shape = outputOf(this.facts, "logits")?.shape;
    if (shape?.length !== 4) {
      throw unsupported("the segmentation model gives no `logits` [batch, classes, height, width]", "say what the steps are: --preprocess FILE.json");
    }
    const isLast = this.labels.length === shape[3] && shape[1] !== shape[3];
    return [{ step: "post.mask", tensor: this.tensor("logits"), layout: isLast ? "HWC" : "CHW" }];
  }

  /** @param {string} task @returns {Found} */
  sounds(task) {
    const config = this.processor("audio");
    if (!config) throw unsupported(NO_PROCESSOR, DOWNLOAD);
    const [spec, ...others] = this.facts.inputs;
    const steps = soundSteps(config, spec);
    if (others.length) throw unsupported(`no step makes the input \`${others[0].name}\` of a sound`, "export the model with its first input alone");
    if (task !== CTC) return made(task, SOURCE, { [spec.name]: steps }, this.classes(5), this.labels);
    return made(task, SOURCE, { [spec.name]: steps }, this.transcript(), [], this.own("vocab.json"));
  }

  /** @returns {StepJson[]} The steps to the text of a CTC model, which read its vocabulary. */
  transcript() {
    if (!this.files["vocab.json"]) throw unsupported("the folder has no vocab.json", DOWNLOAD);
    const config = this.read("tokenizer_config.json");
    const step = { step: "post.ctc", tensor: this.tensor("logits") };
    if (!config) return [step];
    const blank = tokenOf(config, "pad_token", "<pad>");
    const delimiter = config.text("word_delimiter_token", "|");
    const lowers = config.flag("do_lower_case");
    const special = [blank, tokenOf(config, "bos_token", "<s>"), tokenOf(config, "eos_token", "</s>"), tokenOf(config, "unk_token", "<unk>")];
    return [{ ...step, blank, delimiter, lowers, special }];
  }

  /** @param {string} task @returns {Found} */
  texts(task) {
    if (!this.files["tokenizer.json"]) {
      throw unsupported("the folder has no tokenizer.json", "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it");
    }
    const after = this.afterText(task);
    const isSentences = task === "feature-extraction" && this.files["modules.json"] !== undefined;
    const prefix = isSentences ? this.prompt() : undefined;
    const length = this.fixedLength() || this.maxLength();
    /** @type {Record<string, string>} */
    const truncate = { "question-answering": "only_second", "zero-shot-classification": "only_first" };
    const tokenize = {
      step: "text.tokenize",
      max_length: this.maxLength(),
      // transformers' own: at most 128 tokens, and half of a window.
      doc_stride: task === "question-answering" && length !== undefined ? Math.min(Math.floor(length / 2), 128) : undefined,
      pad_id: this.config.whole("pad_token_id"),
      pad_to: this.fixedLength(),
      truncate: truncate[task],
      offsets: ["token-classification", "question-answering"].includes(task) || undefined,
      prefix,
      tensors: { ids: IDS, mask: MASK, types: TYPES },
    };
    const labels = ["feature-extraction", "fill-mask", "question-answering"].includes(task) ? [] : this.labels;
    const other = [...this.inputs.keys()].find((name) => ![IDS, MASK, TYPES].includes(name));
    if (other !== undefined) throw unsupported(`no step makes the input \`${other}\` of a text`, "export the model without");
    return made(task, isSentences ? SENTENCES : SOURCE, { "*": [tokenize] }, after, labels, this.own("tokenizer.json"));
  }

  /** @param {string} task @returns {StepJson[]} */
  afterText(task) {
    if (task === "text-classification") return this.classes(1);
    if (task === "question-answering") return [{ step: "post.answer_span", start: this.output("start_logits"), end: this.output("end_logits") }];
    if (task === "feature-extraction") return this.vectors();
    const tensor = this.tensor("logits");
    if (task === "zero-shot-classification") {
      if (this.labels.some((label) => label.toLowerCase().startsWith("entail"))) return [{ step: "post.tensor", tensor }];
      throw new EdgeInferError("the model has no label `entailment`", "input_error", { hint: "take a model that was trained on NLI" });
    }
    if (task === "text-ranking") return [{ step: this.labels.length < 2 ? "post.sigmoid" : "post.tensor", tensor }];
    const softmax = { step: "post.softmax", tensor };
    return task === "token-classification" ? [softmax, { step: "post.entities" }] : [softmax, { step: "post.fill_mask", mask: this.maskToken() }];
  }

  /** @returns {StepJson[]} The steps to the vector of a text: what `modules.json` says, else the vectors of all tokens. */
  vectors() {
    if (this.facts.outputs.some(({ name }) => TEXT_VECTORS.includes(name))) return [{ step: "post.tensor", tensor: this.tensor(...TEXT_VECTORS) }];
    const tensor = this.tensor(...TOKEN_VECTORS);
    if (!this.files["modules.json"]) return [{ step: "post.pool", tensor, method: "none" }];
    let [method, normalizes] = ["none", false];
    for (const module of this.modules()) {
      const kind = module.split(".").pop();
      if (kind === "Pooling") method = this.pooling();
      else if (kind === "Normalize") normalizes = true;
      else if (kind !== "Transformer") throw unsupported(`the module \`${kind}\` of modules.json is not supported`, OTHERWISE);
    }
    const pool = { step: "post.pool", tensor, method };
    return normalizes ? [pool, { step: "post.normalize" }] : [pool];
  }

  /** @returns {string[]} */
  modules() {
    const entries = readAny(this.files["modules.json"], "modules.json");
    if (!Array.isArray(entries) || entries.some((one) => typeof one?.type !== "string")) {
      throw new EdgeInferError("`modules.json` is not a list of modules with a `type`", "bundle_error", { hint: "download the file again" });
    }
    return entries.map(({ type }) => type);
  }

  /** @returns {string} */
  pooling() {
    const config = this.read("1_Pooling/config.json");
    if (!config) throw unsupported("the folder has no 1_Pooling/config.json", "download it, beside modules.json");
    const word = config.text("pooling_mode");
    const flags = Object.keys(config.values).filter((name) => name.startsWith("pooling_mode_") && isTrue(config.get(name)));
    const chosen = [...(word ? [word] : []), ...flags.map((name) => name.slice("pooling_mode_".length))];
    const known = { ...POOLING_FLAGS, ...POOLING };
    if (chosen.length === 1 && Object.hasOwn(known, chosen[0])) return known[chosen[0]];
    throw unsupported(
      `the pooling \`${chosen.join(" + ") || "without a mode"}\` of 1_Pooling/config.json is not supported; supported is one of ${listed(Object.keys(POOLING))}`,
      OTHERWISE,
    );
  }

  /** @returns {string | undefined} What sentence-transformers puts before each text unless told otherwise. */
  prompt() {
    const [bert, tokenizer] = [this.read("sentence_bert_config.json"), this.read("tokenizer_config.json")];
    if (bert?.flag("do_lower_case") && !tokenizer?.flag("do_lower_case")) {
      throw unsupported(
        "`do_lower_case` of sentence_bert_config.json is not supported",
        "AutoTokenizer.from_pretrained(FOLDER, do_lower_case=True).save_pretrained(FOLDER)",
      );
    }
    const config = this.read("config_sentence_transformers.json");
    if (!config?.has("default_prompt_name")) return undefined;
    return config.part("prompts")?.text(config.text("default_prompt_name")) || undefined;
  }

  /** @returns {string} */
  maskToken() {
    for (const name of ["special_tokens_map.json", "tokenizer_config.json"]) {
      const config = this.read(name);
      if (config?.has("mask_token")) return tokenOf(config, "mask_token", "");
    }
    return "[MASK]";
  }

  /** @returns {number | undefined} The most tokens of a text: what the model was made for, and not what it was last trained with. */
  maxLength() {
    const own = this.read("sentence_bert_config.json")?.whole("max_seq_length");
    let positions = this.config.whole("max_position_embeddings");
    if (positions !== undefined && SHIFTED.includes(this.config.text("model_type"))) positions -= this.config.whole("pad_token_id", 1) + 1;
    const tokenizer = this.read("tokenizer_config.json");
    const value = tokenizer?.get("model_max_length"); // 1e30 stands for none
    const isSaid = (typeof value === "number" || typeof value === "boolean") && Number(value) < NO_LENGTH;
    const said = isSaid ? tokenizer?.real("model_max_length", 0) : undefined;
    const found = [own, positions, said, this.fixedLength()].flatMap((one) => (one !== undefined && one > 0 && one < NO_LENGTH ? [Math.trunc(one)] : []));
    return found.length ? Math.min(...found) : undefined;
  }

  /** @returns {number | undefined} */
  fixedLength() {
    const last = this.inputs.get(IDS)?.shape.at(-1);
    return typeof last === "number" ? last : undefined;
  }

  /** @param {number} count @returns {StepJson[]} The steps of a classifier, as transformers' pipelines choose them. */
  classes(count) {
    const kind = this.config.text("problem_type");
    const classes = outputOf(this.facts, "logits")?.shape.at(-1);
    if (this.labels.length && typeof classes === "number" && classes !== this.labels.length) {
      throw new EdgeInferError(`\`config.json\` names ${this.labels.length} labels, and the model's output has ${classes}`, "bundle_error", {
        hint: "--labels FILE, a name for each class",
      });
    }
    const number = typeof classes === "number" ? classes : this.labels.length || 2;
    const tensor = this.tensor("logits");
    const top = { step: "post.top_k", top_k: count };
    if (kind === "regression") return [{ ...top, tensor }];
    return [{ step: kind === "multi_label_classification" || number === 1 ? "post.sigmoid" : "post.softmax", tensor }, top];
  }

  /** @param {string[]} names @returns {string | undefined} An output as a step gives it: undefined where it is the only one. */
  tensor(...names) {
    return this.facts.outputs.length === 1 ? undefined : this.output(...names);
  }

  /** @param {string[]} names @returns {string} */
  output(...names) {
    const spec = outputOf(this.facts, ...names);
    if (spec) return spec.name;
    throw unsupported(
      `the model has no output \`${names[0]}\`; it has ${listed(this.facts.outputs.map(({ name }) => name))}`,
      "export it for its task: optimum-cli export onnx --model NAME FOLDER",
    );
  }

  /** @param {string} name @returns {Files} A file that the steps read. */
  own(name) {
    return { [name]: this.files[name] };
  }

  /** @param {string} name @returns {Fields | undefined} */
  read(name) {
    return this.files[name] && readFields(this.files[name], name);
  }

  /** @param {"audio" | "image"} kind @returns {Fields | undefined} `preprocessor_config.json` where it is of this kind. */
  processor(kind) {
    const config = this.read("preprocessor_config.json");
    if (!config) return undefined;
    const isSound = config.has("sampling_rate") || /Wav2Vec2|AST|Audio|Whisper|Clap/.test(processorType(config));
    return isSound === (kind === "audio") ? config : undefined;
  }
}

/** @param {Fields} config @param {string} name @param {string} usual @returns {string} A special token: a text, or an object with one. */
function tokenOf(config, name, usual) {
  const value = config.get(name);
  const part = typeof value === "object" && !Array.isArray(value) ? config.part(name) : undefined;
  return part ? part.text("content", usual) : config.text(name, usual);
}

/** @param {string} own @param {string} task */
function otherTask(own, task) {
  return new EdgeInferError(`the model is for ${own}, and not for ${task}`, "input_error", { hint: `pipeline("${own}", ...)`, details: { expected: own, got: task } });
}

/** @param {string} message @param {string} hint */
function unsupported(message, hint) {
  return new EdgeInferError(message, "unsupported", { hint });
}
