import { open } from "node:fs/promises";
import type { PartSource } from "./upload.js";

/** A file to send, of which no more than a part is in memory. Close it afterwards. */
export async function fileSource(path: string): Promise<PartSource & { close(): Promise<void> }> {
  const file = await open(path, "r");
  const { size } = await file.stat();
  return {
    size,
    async read(start, end) {
      const bytes = new Uint8Array(end - start);
      let done = 0;
      while (done < bytes.byteLength) {
        const { bytesRead } = await file.read(bytes, done, bytes.byteLength - done, start + done);
        if (!bytesRead) break;
        done += bytesRead;
      }
      return bytes.subarray(0, done);
    },
    close: () => file.close(),
  };
}
