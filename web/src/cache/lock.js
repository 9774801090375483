/** Do one thing at a time for all pages of an origin, also where one of them stands still. */

/** Milliseconds between two looks at how far the holder of a lock is. */
const PATIENCE_MS = 5000;

/**
 * Work under a lock. WebKit keeps a page that was left for the way back, and with it the lock that its worker holds, for nobody knows
 * how long: where the holder gets no further from one look to the next, the lock is taken from it. It goes on beside this work once it
 * is awake, so that work of two pages at a time must do no harm.
 *
 * @template T
 * @param {string} name
 * @param {AbortSignal | undefined} signal Gives up waiting.
 * @param {() => Promise<T>} work
 * @param {() => Promise<number>} [progress] Gives a number that changes while the holder gets on.
 * @returns {Promise<T>}
 */
export async function locked(name, signal, work, progress = async () => 0) {
  const locks = globalThis.navigator?.locks;
  if (!locks) return work(); // an insecure context, which has no shared storage either
  let [seen, steal] = [-1, false];
  for (;;) {
    const waiting = new AbortController();
    const timer = setTimeout(() => waiting.abort(), PATIENCE_MS);
    /** @type {Promise<T> | undefined} */
    let working;
    const begin = () => {
      clearTimeout(timer);
      return (working = work());
    };
    const options = steal ? { steal } : { signal: signal ? AbortSignal.any([signal, waiting.signal]) : waiting.signal };
    const refused = await locks.request(name, options, begin).then(
      () => undefined,
      (error) => error,
    );
    clearTimeout(timer);
    if (working) return working; // also where another page has taken the lock by now
    if (signal?.aborted || !waiting.signal.aborted) throw refused;
    const now = await progress();
    [seen, steal] = [now, now === seen];
  }
}
