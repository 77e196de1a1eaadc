import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { Fatal } from './messages.ts'

/** A SCRAM-SHA-256 verifier, as Postgres stores it in `rolpassword`. */
export interface Verifier {
  iterations: number
  salt: string
  storedKey: Buffer
  serverKey: Buffer
}

const STORED_VERIFIER =
  /^SCRAM-SHA-256\$([1-9]\d{0,8}):([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]{43}=):([A-Za-z0-9+/]{43}=)$/
const ITERATIONS = 4096

export function parseVerifier(stored: string): Verifier | undefined {
  const [, iterations, salt, storedKey, serverKey] = STORED_VERIFIER.exec(stored) ?? []
  if (!iterations || !salt || !storedKey || !serverKey) return undefined
  return {
    iterations: Number(iterations),
    salt,
    storedKey: Buffer.from(storedKey, 'base64'),
    serverKey: Buffer.from(serverKey, 'base64'),
  }
}

/** A verifier that no password matches. A subject always gets the same salt, as a real role does. */
export function mockVerifier(secret: string, subject: string): Verifier {
  const salt = createHmac('sha256', secret).update(subject).digest().subarray(0, 16).toString('base64')
  return { iterations: ITERATIONS, salt, storedKey: randomBytes(32), serverKey: randomBytes(32) }
}

const CLIENT_FIRST = /^((n|y|p=[^,]*),([^,]*),)(n=[^,]*,r=([\x21-\x2b\x2d-\x7e]+))(?:,.*)?$/s
const CLIENT_FINAL = /^(c=([A-Za-z0-9+/=]*),r=([^,]*)(?:,.*)?),p=([A-Za-z0-9+/=]*)$/s

const malformed = () => new Fatal('08P01', 'malformed SCRAM message')

/** The server's side of one exchange (RFC 5802). */
export class ScramExchange {
  readonly #verifier: Verifier
  #header = ''
  #nonce: string
  #messages = ''

  constructor(verifier: Verifier, nonce = randomBytes(18).toString('base64')) {
    this.#verifier = verifier
    this.#nonce = nonce
  }

  /** Takes client-first-message and returns server-first-message. */
  begin(clientFirst: string): string {
    const [, header = '', flag = '', authorization, bare, nonce] = CLIENT_FIRST.exec(clientFirst) ?? []
    if (flag.startsWith('p')) throw new Fatal('08P01', 'channel binding is not available')
    if (bare === undefined || authorization !== '') throw malformed()
    this.#header = header
    this.#nonce = `${nonce}${this.#nonce}`
    const serverFirst = `r=${this.#nonce},s=${this.#verifier.salt},i=${this.#verifier.iterations}`
    this.#messages = `${bare},${serverFirst}`
    return serverFirst
  }

  /** Takes client-final-message and returns server-final-message; undefined if the password is wrong. */
  finish(clientFinal: string): string | undefined {
    const [, withoutProof, binding, nonce, proofText = ''] = CLIENT_FINAL.exec(clientFinal) ?? []
    if (nonce !== this.#nonce || binding !== Buffer.from(this.#header).toString('base64')) throw malformed()
    const proof = Buffer.from(proofText, 'base64')
    if (proof.length !== 32) throw malformed()
    const { storedKey, serverKey } = this.#verifier
    const messages = `${this.#messages},${withoutProof}`
    const signature = createHmac('sha256', storedKey).update(messages).digest()
    const clientKey = signature.map((byte, n) => byte ^ (proof[n] ?? 0))
    if (!timingSafeEqual(createHash('sha256').update(clientKey).digest(), storedKey)) return undefined
    return `v=${createHmac('sha256', serverKey).update(messages).digest('base64')}`
  }
}
