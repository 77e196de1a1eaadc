import type * as z from 'zod'
import type { GithubConfig } from '../../config.ts'
import { base64Url } from '../secrets/base64url.ts'

/** The settings of a GitHub App, all of them there. */
export interface GithubApp {
  id: string
  privateKey: string
  webhookSecret: string
  apiUrl: string
}

/** Undefined where the operator has registered none. */
export function appOf(config: z.output<typeof GithubConfig>): GithubApp | undefined {
  const { GITHUB_APP_ID: id, GITHUB_APP_PRIVATE_KEY: privateKey, GITHUB_WEBHOOK_SECRET: webhookSecret } = config
  if (!id || !privateKey || !webhookSecret) return undefined
  return { id, privateKey, webhookSecret, apiUrl: config.GITHUB_API_URL.replace(/\/+$/, '') }
}

const ALGORITHM = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }
/** GitHub's clock may be behind ours. */
const EARLIER_SECONDS = 60
/** GitHub takes ten minutes at most. */
const VALID_SECONDS = 540

/** A token that says who the App is, good for nine minutes. Rejects where the key is none. */
export async function appToken({ id, privateKey }: GithubApp, now: Date): Promise<string> {
  const seconds = Math.floor(now.getTime() / 1000)
  const claims = { iat: seconds - EARLIER_SECONDS, exp: seconds + VALID_SECONDS, iss: id }
  const signed = `${encode({ alg: 'RS256', typ: 'JWT' })}.${encode(claims)}`
  const key = await importKey(privateKey)
  const signature = await crypto.subtle.sign(ALGORITHM, key, new TextEncoder().encode(signed))
  return `${signed}.${base64Url(signature)}`
}

/** GitHub gives its keys out as PKCS#1, which WebCrypto takes only inside of PKCS#8. */
async function importKey(pem: string): Promise<CryptoKey> {
  // Settings that hold one line alone spell the ends of lines.
  const [, kind, base64] = /-----BEGIN (RSA )?PRIVATE KEY-----([^-]+)-----END/.exec(pem.replaceAll('\\n', '\n')) ?? []
  if (base64 === undefined) throw new Error('GITHUB_APP_PRIVATE_KEY is no private key in PEM')
  try {
    const der = Uint8Array.from(atob(base64.replaceAll(/\s/g, '')), (char) => char.charCodeAt(0))
    return await crypto.subtle.importKey('pkcs8', kind ? inPkcs8(der) : der, ALGORITHM, false, ['sign'])
  } catch (cause) {
    throw new Error('GITHUB_APP_PRIVATE_KEY is no RSA key that can be read', { cause })
  }
}

/** Version 0, and the object identifier of RSA (1.2.840.113549.1.1.1) with its NULL. */
const RSA_HEAD = [
  0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
]
const SEQUENCE = 0x30
const OCTET_STRING = 0x04

const inPkcs8 = (key: Uint8Array): Uint8Array<ArrayBuffer> =>
  new Uint8Array(element(SEQUENCE, [...RSA_HEAD, ...element(OCTET_STRING, key)]))

/** In DER, for contents of 256 bytes or more. */
const element = (tag: number, contents: Iterable<number>): number[] => {
  const bytes = [...contents]
  return [tag, 0x82, bytes.length >> 8, bytes.length & 0xff, ...bytes]
}

const encode = (value: object): string =>
  base64Url(new TextEncoder().encode(JSON.stringify(value)).buffer as ArrayBuffer)
