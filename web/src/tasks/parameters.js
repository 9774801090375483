/**
 * The tasks and the parameters of the steps, as `edge_infer/tasks` declares them. Written by
 * `python web/generate_parameters.py`; do not edit. A parameter without a default must be given; `argument` marks those
 * that the caller of a pipeline may give.
 */

/** @typedef {"whole" | "real" | "choice" | "flag" | "text" | "numbers"} PlainKind */
/** @typedef {PlainKind | "names" | "texts" | "lists" | "expressions"} Kind */
/**
 * @typedef {object} Declared
 * @property {Kind} kind
 * @property {any} [default]
 * @property {number} [low]
 * @property {number} [high]
 * @property {number} [length]
 * @property {string[]} [choices]
 * @property {boolean} [argument]
 */

/** By step, by parameter. @type {Record<string, Record<string, Declared>>} */
export const PARAMETERS = {
  "audio.decode": {
    rate: { kind: "whole", default: 16000, low: 1, high: 768000 },
    sampling_rate: { kind: "whole", default: null, low: 1, high: 768000, argument: true },
  },
  "audio.fit": {
    samples: { kind: "whole", low: 1, high: 268435456 },
    pad: { kind: "flag", default: true },
  },
  "audio.frame": {
    samples: { kind: "whole", low: 1, high: 1048576 },
    context: { kind: "whole", default: 0, low: 0, high: 1048576 },
  },
  "audio.log_mel": {
    rate: { kind: "whole", default: 16000, low: 1, high: 768000 },
    fft: { kind: "whole", default: 400, low: 2, high: 16384 },
    frame: { kind: "whole", default: null, low: 2, high: 16384 },
    hop: { kind: "whole", default: 160, low: 1, high: 65536 },
    mels: { kind: "whole", default: 80, low: 1, high: 512 },
    low_hz: { kind: "real", default: 0.0, low: 0 },
    high_hz: { kind: "real", default: null, low: 0 },
    scale: { kind: "choice", default: "slaney", choices: ["slaney", "htk"] },
    slopes: { kind: "choice", default: "hz", choices: ["hz", "mel"] },
    area_norm: { kind: "flag", default: true },
    power: { kind: "whole", default: 2, low: 1, high: 2 },
    center: { kind: "flag", default: true },
    window: { kind: "choice", default: "hann", choices: ["hann", "hann_symmetric", "hamming", "povey"] },
    remove_mean: { kind: "flag", default: false },
    preemphasis: { kind: "real", default: 0.0, low: 0, high: 1 },
    log: { kind: "choice", default: "log10", choices: ["log10", "ln", "ln_plus_floor"] },
    floor: { kind: "real", default: 1e-10, low: 0 },
    style: { kind: "choice", default: "plain", choices: ["plain", "whisper"] },
    axes: { kind: "choice", default: "frames_first", choices: ["frames_first", "mels_first"] },
  },
  "audio.mfcc": {
    coefficients: { kind: "whole", default: 13, low: 1, high: 512 },
    norm: { kind: "choice", default: "ortho", choices: ["ortho", "tensorflow"] },
  },
  "audio.micro_features": {
    rate: { kind: "whole", default: 16000, low: 4000, high: 48000 },
    window: { kind: "whole", default: 480, low: 16, high: 2048 },
    hop: { kind: "whole", default: 160, low: 1, high: 2048 },
    channels: { kind: "whole", default: 40, low: 1, high: 128 },
    low_hz: { kind: "real", default: 125.0, low: 0, high: 24000 },
    high_hz: { kind: "real", default: 7500.0, low: 1, high: 24000 },
    gain: { kind: "flag", default: true },
    unit: { kind: "choice", default: "real", choices: ["real", "int8"] },
  },
  "audio.normalize": {
    method: { kind: "choice", default: "none", choices: ["none", "mean_variance", "peak"] },
    epsilon: { kind: "real", default: 1e-07, low: 0 },
  },
  "audio.resample": {
    rate: { kind: "whole", low: 1, high: 768000 },
    zeros: { kind: "whole", default: 16, low: 1, high: 256 },
    rolloff: { kind: "real", default: 0.945, low: 0.1, high: 1 },
  },
  "audio.scale": {
    factor: { kind: "real", default: 1.0, low: 1e-09, high: 1000000000.0 },
    by: { kind: "choice", default: "none", choices: ["none", "loudest", "highest"] },
    clip: { kind: "real", default: null, low: 0, high: 1000000000.0 },
  },
  "image.center_crop": {
    width: { kind: "whole", low: 1, high: 16384 },
    height: { kind: "whole", low: 1, high: 16384 },
    rule: { kind: "choice", default: "transformers", choices: ["transformers", "torchvision"] },
  },
  "image.decode": {
    mode: { kind: "choice", default: "RGB", choices: ["RGB", "L"] },
    background: { kind: "numbers", default: null, low: 0, high: 255, length: 3 },
  },
  "image.flip_channels": {},
  "image.letterbox": {
    width: { kind: "whole", low: 1, high: 16384 },
    height: { kind: "whole", low: 1, high: 16384 },
    filter: { kind: "choice", default: "bilinear", choices: ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] },
    order: { kind: "choice", default: "horizontal", choices: ["horizontal", "pillow12.2", "pillow13"] },
    color: { kind: "whole", default: 114, low: 0, high: 255 },
    anchor: { kind: "choice", default: "center", choices: ["center", "top_left"] },
    upscale: { kind: "flag", default: true },
  },
  "image.rescale_normalize": {
    scale: { kind: "real", default: 0.00392156862745098 },
    mean: { kind: "numbers", default: [0.0, 0.0, 0.0] },
    std: { kind: "numbers", default: [1.0, 1.0, 1.0] },
    layout: { kind: "choice", default: "auto", choices: ["auto", "NCHW", "NHWC"] },
  },
  "image.resize": {
    width: { kind: "whole", default: null, low: 1, high: 16384 },
    height: { kind: "whole", default: null, low: 1, high: 16384 },
    shortest: { kind: "whole", default: null, low: 1, high: 16384 },
    longest: { kind: "whole", default: null, low: 1, high: 16384 },
    multiple: { kind: "whole", default: null, low: 1, high: 1024 },
    filter: { kind: "choice", default: "bilinear", choices: ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] },
    order: { kind: "choice", default: "horizontal", choices: ["horizontal", "pillow12.2", "pillow13"] },
  },
  "image.to_tensor": {
    layout: { kind: "choice", default: "auto", choices: ["auto", "NCHW", "NHWC"] },
  },
  "post.answer_span": {
    start: { kind: "text", default: "start_logits" },
    end: { kind: "text", default: "end_logits" },
    top_k: { kind: "whole", default: 1, low: 1, high: 1000, argument: true },
    max_answer_len: { kind: "whole", default: 15, low: 1, high: 10000, argument: true },
  },
  "post.boxes": {
    format: { kind: "choice", choices: ["decoded", "fastestdet", "ssd", "tflite", "yolov5", "yolov8", "yolov10", "yunet"] },
    tensors: { kind: "names", default: {} },
    threshold: { kind: "real", default: 0.5, low: 0, high: 1, argument: true },
    order: { kind: "choice", default: "xyxy", choices: ["xyxy", "yxyx", "cxcywh"] },
    unit: { kind: "choice", default: "pixel", choices: ["pixel", "ratio"] },
    background: { kind: "choice", default: "none", choices: ["none", "first", "last"] },
    activation: { kind: "choice", default: "none", choices: ["none", "sigmoid", "softmax"] },
    strides: { kind: "numbers", default: [8, 16, 32], low: 1, high: 1024 },
    anchors: { kind: "numbers", default: null },
    variances: { kind: "numbers", default: [10.0, 10.0, 5.0, 5.0], length: 4 },
    exponential: { kind: "flag", default: true },
    points: { kind: "whole", default: 0, low: 0, high: 1000 },
  },
  "post.ctc": {
    tensor: { kind: "text", default: null },
    file: { kind: "text", default: "vocab.json" },
    blank: { kind: "text", default: "<pad>" },
    delimiter: { kind: "text", default: "|" },
    special: { kind: "texts", default: ["<pad>", "<s>", "</s>", "<unk>"] },
    lowers: { kind: "flag", default: false },
  },
  "post.depth": {
    tensor: { kind: "text", default: null },
  },
  "post.detections": {
    points: { kind: "names", default: {} },
  },
  "post.entities": {
    tensor: { kind: "text", default: null },
    aggregation_strategy: { kind: "choice", default: "none", choices: ["none", "simple"], argument: true },
    ignore: { kind: "text", default: "O" },
  },
  "post.fill_mask": {
    tensor: { kind: "text", default: null },
    file: { kind: "text", default: "tokenizer.json" },
    mask: { kind: "text", default: "[MASK]" },
    top_k: { kind: "whole", default: 5, low: 1, high: 1000, argument: true },
  },
  "post.graph": {
    file: { kind: "text" },
  },
  "post.image": {
    tensor: { kind: "text", default: null },
    layout: { kind: "choice", default: "CHW", choices: ["CHW", "HWC"] },
    scale: { kind: "real", default: 255.0, low: -1000000.0, high: 1000000.0 },
    offset: { kind: "real", default: 0.0, low: -1000000.0, high: 1000000.0 },
  },
  "post.label": {
    tensor: { kind: "text", default: null },
  },
  "post.mask": {
    tensor: { kind: "text", default: null },
    layout: { kind: "choice", default: "labels", choices: ["labels", "CHW", "HWC"] },
  },
  "post.nearest": {
    tensor: { kind: "text", default: null },
  },
  "post.nms": {
    iou: { kind: "real", default: 0.45, low: 0, high: 1, argument: true },
    by_class: { kind: "flag", default: true },
    limit: { kind: "whole", default: 300, low: 1, high: 100000 },
    method: { kind: "choice", default: "greedy", choices: ["greedy", "weighted"] },
  },
  "post.normalize": {
    tensor: { kind: "text", default: null },
    epsilon: { kind: "real", default: 1e-12, low: 0 },
  },
  "post.pool": {
    tensor: { kind: "text", default: null },
    method: { kind: "choice", default: "mean", choices: ["mean", "first", "last", "max", "none"] },
  },
  "post.sigmoid": {
    tensor: { kind: "text", default: null },
  },
  "post.softmax": {
    tensor: { kind: "text", default: null },
    temperature: { kind: "real", default: 1.0, low: 1e-06 },
  },
  "post.speech_segments": {
    tensor: { kind: "text", default: null },
    threshold: { kind: "real", default: 0.5, low: 0, high: 1, argument: true },
    end_threshold: { kind: "real", default: null, low: 0, high: 1, argument: true },
    min_speech_ms: { kind: "real", default: 250.0, low: 0, argument: true },
    min_silence_ms: { kind: "real", default: 100.0, low: 0, argument: true },
    pad_ms: { kind: "real", default: 30.0, low: 0, argument: true },
  },
  "post.tensor": {
    tensor: { kind: "text", default: null },
  },
  "post.top_k": {
    tensor: { kind: "text", default: null },
    top_k: { kind: "whole", default: 5, low: 1, high: 1048576, argument: true },
    threshold: { kind: "real", default: null, argument: true },
  },
  "post.value": {
    tensor: { kind: "text", default: null },
  },
  "tabular.categories": {
    values: { kind: "lists" },
    unknown: { kind: "choice", default: "error", choices: ["error", "missing", "minus_one"] },
  },
  "tabular.clip": {
    columns: { kind: "texts" },
    low: { kind: "numbers" },
    high: { kind: "numbers" },
  },
  "tabular.columns": {
    names: { kind: "texts" },
    types: { kind: "texts" },
    nullable: { kind: "texts", default: [] },
  },
  "tabular.derive": {
    names: { kind: "texts" },
    expressions: { kind: "expressions" },
    nullable: { kind: "texts", default: [] },
  },
  "tabular.impute": {
    columns: { kind: "texts" },
    values: { kind: "numbers" },
  },
  "tabular.scale": {
    columns: { kind: "texts" },
    mean: { kind: "numbers" },
    scale: { kind: "numbers" },
  },
  "tabular.tensor": {},
  "tensor.constant": {
    values: { kind: "numbers" },
  },
  "tensor.dequantize": {
    tensor: { kind: "text", default: null },
    scale: { kind: "real", low: 1e-30 },
    zero_point: { kind: "whole", default: 0 },
  },
  "tensor.fit": {
    rows: { kind: "whole", low: 1, high: 1048576 },
    value: { kind: "real", default: 0.0 },
  },
  "tensor.frames": {
    rows: { kind: "whole", low: 1, high: 65536 },
    samples: { kind: "whole", default: 0, low: 0, high: 1048576 },
  },
  "tensor.graph": {
    file: { kind: "text" },
  },
  "tensor.normalize": {
    mean: { kind: "real", default: 0.0 },
    std: { kind: "real", default: 1.0, low: 1e-30 },
  },
  "tensor.quantize": {
    scale: { kind: "real", low: 1e-30 },
    zero_point: { kind: "whole", default: 0 },
  },
  "tensor.reshape": {
    shape: { kind: "numbers" },
  },
  "text.tokenize": {
    file: { kind: "text", default: "tokenizer.json" },
    max_length: { kind: "whole", default: null, low: 1, high: 1048576, argument: true },
    tensors: { kind: "names", default: {"ids": "input_ids", "mask": "attention_mask", "types": "token_type_ids"} },
    pad_id: { kind: "whole", default: 0, low: 0, high: 2147483648 },
    pad_to: { kind: "whole", default: null, low: 1, high: 1048576 },
    doc_stride: { kind: "whole", default: null, low: 0, high: 1048576 },
    truncate: { kind: "choice", default: "longest_first", choices: ["longest_first", "only_first", "only_second"] },
    offsets: { kind: "flag", default: false },
    prefix: { kind: "text", default: null },
  },
};

/** What each step takes and what it gives. @type {Record<string, {takes: string[], gives: string}>} */
export const FLOWS = {
  "audio.decode": { takes: ["raw"], gives: "sound" },
  "audio.fit": { takes: ["sound"], gives: "sound" },
  "audio.frame": { takes: ["sound"], gives: "frames" },
  "audio.log_mel": { takes: ["sound"], gives: "tensor" },
  "audio.mfcc": { takes: ["tensor"], gives: "tensor" },
  "audio.micro_features": { takes: ["sound"], gives: "tensor" },
  "audio.normalize": { takes: ["sound"], gives: "tensor" },
  "audio.resample": { takes: ["sound"], gives: "sound" },
  "audio.scale": { takes: ["sound"], gives: "sound" },
  "image.center_crop": { takes: ["image"], gives: "image" },
  "image.decode": { takes: ["raw"], gives: "image" },
  "image.flip_channels": { takes: ["image"], gives: "image" },
  "image.letterbox": { takes: ["image"], gives: "image" },
  "image.rescale_normalize": { takes: ["image"], gives: "tensor" },
  "image.resize": { takes: ["image"], gives: "image" },
  "image.to_tensor": { takes: ["image"], gives: "tensor" },
  "post.answer_span": { takes: ["outputs"], gives: "answer" },
  "post.boxes": { takes: ["outputs"], gives: "detections" },
  "post.ctc": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.depth": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.detections": { takes: ["detections"], gives: "answer" },
  "post.entities": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.fill_mask": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.graph": { takes: ["outputs"], gives: "outputs" },
  "post.image": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.label": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.mask": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.nearest": { takes: ["outputs", "tensor"], gives: "tensor" },
  "post.nms": { takes: ["detections"], gives: "detections" },
  "post.normalize": { takes: ["outputs", "tensor"], gives: "tensor" },
  "post.pool": { takes: ["outputs", "tensor"], gives: "tensor" },
  "post.sigmoid": { takes: ["outputs", "tensor"], gives: "tensor" },
  "post.softmax": { takes: ["outputs", "tensor"], gives: "tensor" },
  "post.speech_segments": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.tensor": { takes: ["outputs", "tensor"], gives: "tensor" },
  "post.top_k": { takes: ["outputs", "tensor"], gives: "answer" },
  "post.value": { takes: ["outputs", "tensor"], gives: "answer" },
  "tabular.categories": { takes: ["table"], gives: "table" },
  "tabular.clip": { takes: ["table"], gives: "table" },
  "tabular.columns": { takes: ["raw"], gives: "table" },
  "tabular.derive": { takes: ["table"], gives: "table" },
  "tabular.impute": { takes: ["table"], gives: "table" },
  "tabular.scale": { takes: ["table"], gives: "table" },
  "tabular.tensor": { takes: ["table"], gives: "tensor" },
  "tensor.constant": { takes: ["raw"], gives: "tensor" },
  "tensor.dequantize": { takes: ["outputs"], gives: "outputs" },
  "tensor.fit": { takes: ["tensor"], gives: "tensor" },
  "tensor.frames": { takes: ["tensor"], gives: "frames" },
  "tensor.graph": { takes: ["tensor"], gives: "tensor" },
  "tensor.normalize": { takes: ["tensor"], gives: "tensor" },
  "tensor.quantize": { takes: ["tensor"], gives: "tensor" },
  "tensor.reshape": { takes: ["tensor"], gives: "tensor" },
  "text.tokenize": { takes: ["raw"], gives: "tensors" },
};

/** The kind of each task's raw input, and what the caller may give besides the arguments of the steps. */
/** @type {Record<string, {takes: "image" | "sound" | "text" | "table", args: string[]}>} */
export const TASKS = {
  "depth-estimation": { takes: "image", args: [] },
  "image-classification": { takes: "image", args: [] },
  "image-feature-extraction": { takes: "image", args: [] },
  "image-segmentation": { takes: "image", args: [] },
  "image-to-image": { takes: "image", args: [] },
  "keypoint-detection": { takes: "image", args: [] },
  "object-detection": { takes: "image", args: [] },
  "audio-classification": { takes: "sound", args: [] },
  "automatic-speech-recognition": { takes: "sound", args: [] },
  "tabular-classification": { takes: "table", args: [] },
  "tabular-regression": { takes: "table", args: [] },
  "voice-activity-detection": { takes: "sound", args: [] },
  "feature-extraction": { takes: "text", args: [] },
  "fill-mask": { takes: "text", args: [] },
  "text-classification": { takes: "text", args: [] },
  "token-classification": { takes: "text", args: [] },
  "question-answering": { takes: "text", args: ["doc_stride"] },
  "zero-shot-classification": { takes: "text", args: ["candidate_labels", "hypothesis_template", "multi_label"] },
  "text-ranking": { takes: "text", args: ["top_k"] },
};
