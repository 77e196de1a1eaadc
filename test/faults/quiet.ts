/** Work of the runtime itself (WebCrypto, real sockets) that is under way: the code under test is not quiet until it ends. */
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

/** Until the code under test waits for nothing but the simulation. */
export async function quiet(): Promise<void> {
  do await turn()
  while (underWay > 0)
  await turn()
  if (underWay > 0) await quiet()
}

let wrapped = false

/** WebCrypto works on other threads: its promises are counted, so that quiet means quiet. */
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
