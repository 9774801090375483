/** An input or output: `scale * (integer - zero)` is the number that an integer stands for. */
export interface Tensor {
  readonly name: string;
  readonly dtype: "float32" | "int8" | "uint8" | "int16" | "int32" | "int64";
  readonly shape: readonly number[];
  readonly scale?: number;
  readonly zero?: number;
}

export type Given = Record<string, ArrayLike<number> | BigInt64Array>;
export type Elements = Float32Array | Int8Array | Uint8Array | Int16Array | Int32Array | BigInt64Array;

export class Model {
  private constructor();
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  run(inputs: Given, options?: { quantized?: boolean }): Record<string, Elements>;
  /** Give the variables of the model their first values; a run leaves them for the next one. */
  reset(): void;
}

export function load(source?: string | URL | Response | BufferSource | WebAssembly.Module): Promise<Model>;
export function run(inputs: Given, options?: { quantized?: boolean }): Promise<Record<string, Elements>>;
