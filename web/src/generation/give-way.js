/** Let a thread that computes hear its messages. */

/** @type {(() => void)[]} */
const waiting = [];
/** @type {MessageChannel | undefined} */
let channel;

/** @returns {Promise<void>} Kept once the messages that have arrived until now were heard; a timer would wait 4 ms in a page. */
export function giveWay() {
  return new Promise((resolve) => {
    if (typeof setImmediate === "function") return void setImmediate(resolve);
    if (!channel) {
      channel = new MessageChannel();
      channel.port1.onmessage = () => waiting.shift()?.();
    }
    waiting.push(resolve);
    channel.port2.postMessage(null);
  });
}
