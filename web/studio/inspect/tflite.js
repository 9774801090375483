/** Read a TFLite file for a look at it. Layout and field numbers are those of `src/engines/tflite-file.js`: schema.fbs, version 3. */

/** @typedef {import("./onnx.js").Seen} Seen */

/** Of BuiltinOperator in the schema, by number; a copy of those in `edge_infer.formats.tflite`. */
const OPERATORS = `
  ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED
  HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU
  RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
  EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE
  UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE
  BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
  TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD
  REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD
  RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
  WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4
  NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE
  BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
  CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM
  MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
  UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY
  STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION
  STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL
  STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT
  STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
  STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT
  STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
  STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
`.trim().split(/\s+/);
const TYPES = "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64".split(" ");
const CUSTOM = 32;
const text = new TextDecoder();

/**
 * @param {Uint8Array} bytes
 * @returns {Seen}
 * @throws {RangeError} It refers to places outside itself.
 */
export function readTflite(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const int = (/** @type {number} */ place) => view.getInt32(place, true);
  const at = (/** @type {number} */ place) => place + view.getUint32(place, true);
  const field = (/** @type {number} */ table, /** @type {number} */ id) => {
    const vtable = table - int(table);
    const offset = 4 + 2 * id < view.getUint16(vtable, true) ? view.getUint16(vtable + 4 + 2 * id, true) : 0;
    return offset && table + offset;
  };
  const list = (/** @type {number} */ place, /** @type {(place: number) => any} */ read) => {
    if (!place) return [];
    const start = at(place);
    const count = view.getUint32(start, true);
    if (count > bytes.length / 4) throw new RangeError("a list is longer than the file");
    return Array.from({ length: count }, (_, i) => read(start + 4 + 4 * i));
  };
  const word = (/** @type {number} */ place) => {
    if (!place) return "";
    const start = at(place);
    return text.decode(bytes.subarray(start + 4, start + 4 + view.getUint32(start, true)));
  };
  const model = at(0);
  const operators = list(field(model, 1), at).map((table) => {
    const [old, now] = [field(table, 0), field(table, 3)];
    const id = Math.max(old ? view.getInt8(old) : 0, now ? int(now) : 0);
    return id === CUSTOM ? `custom: ${word(field(table, 1))}` : (OPERATORS[id] ?? `operator ${id}`);
  });
  const sizes = list(field(model, 4), at).map((table) => {
    const [data, outside] = [field(table, 0), field(table, 2)];
    return data ? view.getUint32(at(data), true) : outside ? Number(view.getBigUint64(outside, true)) : 0;
  });
  const graph = list(field(model, 2), at)[0];
  if (!graph) throw new RangeError("no graph");
  const tensors = list(field(graph, 0), at).map((table) => {
    const [buffer, type] = [field(table, 2), field(table, 1)];
    return { name: word(field(table, 3)), bytes: buffer ? (sizes[view.getUint32(buffer, true)] ?? 0) : 0, shape: list(field(table, 0), int), dtype: TYPES[type ? view.getInt8(type) : 0] ?? "?" };
  });
  const ends = (/** @type {number} */ id) => list(field(graph, id), int).map((i) => {
    if (!tensors[i]) throw new RangeError("an end is no tensor");
    return tensors[i];
  });
  const counted = new Set();
  const layers = list(field(graph, 3), at).map((table) => {
    const code = field(table, 0);
    let sum = 0;
    for (const i of list(field(table, 1), int)) {
      if (i < 0 || counted.has(i)) continue;
      counted.add(i);
      sum += tensors[i]?.bytes ?? 0;
    }
    return { operator: operators[code ? view.getUint32(code, true) : 0] ?? "?", name: tensors[list(field(table, 2), int)[0]]?.name ?? "", bytes: sum };
  });
  return { format: "TFLite", version: "schema 3", inputs: ends(1), outputs: ends(2), layers };
}
