import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex } from "@noble/hashes/utils.js";

/** What can be sent: bytes, a Blob or File of a browser, or anything that reads parts of itself (fileSource in foldback/node). */
export type Source = Uint8Array | Blob | PartSource;

export interface PartSource {
  readonly size: number;
  read(start: number, end: number): Promise<Uint8Array>;
}

export interface Progress {
  step: "digest" | "upload";
  done: number;
  total: number;
}

export interface TransferOptions {
  onProgress?: (progress: Progress) => void;
  signal?: AbortSignal;
}

export function partsOf(source: Source): PartSource {
  if (source instanceof Uint8Array) {
    return { size: source.byteLength, read: (start, end) => Promise.resolve(source.subarray(start, end)) };
  }
  if (source instanceof Blob) {
    return { size: source.size, read: async (start, end) => new Uint8Array(await source.slice(start, end).arrayBuffer()) };
  }
  return source;
}

export const PART = 8 * 1024 * 1024;

/** "sha256:…" of all of it. */
export async function digestOf(source: PartSource, options: TransferOptions): Promise<string> {
  const hash = sha256.create();
  for (let at = 0; at < source.size; ) {
    options.signal?.throwIfAborted();
    const part = await source.read(at, Math.min(at + PART, source.size));
    if (!part.byteLength) throw new Error("the source ended before its size: it was changed while it was read");
    hash.update(part);
    at += part.byteLength;
    options.onProgress?.({ step: "digest", done: at, total: source.size });
  }
  return `sha256:${bytesToHex(hash.digest())}`;
}
