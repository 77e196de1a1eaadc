/**
 * The number of running operations of the runtime itself (WebCrypto, real sockets): the code under test is not quiet
 * until they end.
 */
let underWay = 0

export async function counted<T>(work: Promise<T>): Promise<T> {
  underWay += 1
  try {
    return await work
  } finally {
    underWay -= 1
  }
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

/** Waits until the code under test waits only for the simulation. */
export async function quiet(): Promise<void> {
  do await turn()
  while (underWay > 0)
  await turn()
  if (underWay > 0) await quiet()
}

let wrapped = false

/** Counts the promises of WebCrypto, which works on other threads, so that quiet means quiet. */
export function countCrypto(): void {
  if (wrapped) return
  wrapped = true
  const subtle = crypto.subtle as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>
  for (const name of ['encrypt', 'decrypt', 'sign', 'verify', 'digest', 'importKey', 'deriveBits', 'deriveKey']) {
    const original = subtle[name]
    if (!original) throw new Error(`WebCrypto has no ${name}`)
    subtle[name] = (...args) => counted(original.apply(crypto.subtle, args))
  }
}
