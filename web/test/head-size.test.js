import assert from "node:assert/strict";
import { test } from "node:test";

import { sizeInHead } from "../src/tasks/image/head-size.js";

// Written by Pillow: an image of 300 x 5 pixels in each format, its first bytes.
const HEADS = {
  PNG: "iVBORw0KGgoAAAANSUhEUgAAASwAAAAFCAIAAABwy0ZoAAAAKklEQVR4nO3TMQEAIAzAMDb8e0ZGDxIFfTqz9w==",
  JPEG: "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wAARCAAFASwDASI=",
  "progressive JPEG": "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wgARCAAFASwDASI=",
  GIF: "R0lGODdhLAEFAIAAAAAAAAAAACwAAAAALAEFAAAIQQABCBxIsKDBgwgTKlzIsKHDhxAjSpxIsaLFixgzatzIsQ==",
  BMP: "Qk3KEQAAAAAAADYAAAAoAAAALAEAAAUAAAABABgAAAAAAJQRAADEDgAAxA4AAAAAAAAAAAAAAwIBAwIBAwIBAw==",
  WebP: "UklGRjoAAABXRUJQVlA4IC4AAACwAwCdASosAQUAPm02mEkkIyKhIagAgA2JaQAADHThw4cOHDhugAD++3jAAA==",
  "lossless WebP": "UklGRiAAAABXRUJQVlA4TBQAAAAvKwEBAAdQgVQIIAAKmv7HiIj+Bw==",
  "transparent WebP": "UklGRmQAAABXRUJQVlA4WAoAAAAQAAAAKwEABAAAQUxQSA8AAAABB0AgaYu3/RERR0T0PwAAVlA4IC4AAACwAw==",
};

for (const [name, text] of Object.entries(HEADS)) {
  const head = Uint8Array.from(Buffer.from(text, "base64"));

  test(`the head of a ${name} file states its size`, () => {
    assert.deepEqual(sizeInHead(head), [300, 5]);
    assert.deepEqual(sizeInHead(new Uint8Array(Buffer.concat([Buffer.alloc(3), head])).subarray(3)), [300, 5]);
  });

  test(`the head of a ${name} file that is cut or damaged gives a size or none`, () => {
    for (let end = 0; end < head.length; end += 1) {
      const found = sizeInHead(head.slice(0, end));
      assert.ok(found === null || (found[0] === 300 && found[1] === 5));
    }
    for (let place = 0; place < head.length; place += 1) {
      for (const byte of [0, 1, 127, 128, 255]) sizeInHead(head.with(place, byte));
    }
  });
}

test("profiles before the frame of a JPEG file are passed over, and other files have no size", () => {
  const plain = Uint8Array.from(Buffer.from(HEADS.JPEG, "base64"));
  const profile = Buffer.concat([Buffer.from([0xff, 0xe2, 0xff, 0xff]), Buffer.alloc(65_533, 0xc0)]);
  assert.deepEqual(sizeInHead(Buffer.concat([plain.slice(0, 2), profile, profile, plain.slice(2)])), [300, 5]);
  assert.equal(sizeInHead(Buffer.from("<svg xmlns='http://www.w3.org/2000/svg' width='300' height='5'/>")), null);
  assert.equal(sizeInHead(new Uint8Array(0)), null);
});
