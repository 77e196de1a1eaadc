import type * as z from 'zod'
import type { GithubConfig } from '../../config.ts'
import { base64Url } from '../secrets/base64url.ts'

/** Complete settings of a GitHub App. */
export interface GithubApp {
  id: string
  privateKey: string
  webhookSecret: string
  apiUrl: string
}

/** Returns undefined if the operator has not configured a GitHub App. */
export function githubAppOf(config: z.output<typeof GithubConfig>): GithubApp | undefined {
  const { GITHUB_APP_ID: id, GITHUB_APP_PRIVATE_KEY: privateKey, GITHUB_WEBHOOK_SECRET: webhookSecret } = config
  if (!id || !privateKey || !webhookSecret) return undefined
  return { id, privateKey, webhookSecret, apiUrl: config.GITHUB_API_URL.replace(/\/+$/, '') }
}

const ALGORITHM = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }
/** GitHub's clock may be slow. */
const CLOCK_SKEW_SECONDS = 60
/** GitHub accepts at most ten minutes. */
const VALID_SECONDS = 540

/** Creates a JWT that authenticates the App for nine minutes. Rejects if the private key is invalid. */
export async function appToken({ id, privateKey }: GithubApp, now: Date): Promise<string> {
  const seconds = Math.floor(now.getTime() / 1000)
  const claims = { iat: seconds - CLOCK_SKEW_SECONDS, exp: seconds + VALID_SECONDS, iss: id }
  const signed = `${encode({ alg: 'RS256', typ: 'JWT' })}.${encode(claims)}`
  const key = await importKey(privateKey)
  const signature = await crypto.subtle.sign(ALGORITHM, key, new TextEncoder().encode(signed))
  return `${signed}.${base64Url(signature)}`
}

/** Imports a key as GitHub issues it, in PKCS#1. WebCrypto accepts it only when it is wrapped in PKCS#8. */
async function importKey(pem: string): Promise<CryptoKey> {
  // A setting of a single line has line breaks written as `\n`.
  const [, kind, base64] = /-----BEGIN (RSA )?PRIVATE KEY-----([^-]+)-----END/.exec(pem.replaceAll('\\n', '\n')) ?? []
  if (base64 === undefined) throw new Error('Invalid GITHUB_APP_PRIVATE_KEY: must be a private key in PEM format')
  try {
    const der = Uint8Array.from(atob(base64.replaceAll(/\s/g, '')), (char) => char.charCodeAt(0))
    return await crypto.subtle.importKey('pkcs8', kind ? wrapInPkcs8(der) : der, ALGORITHM, false, ['sign'])
  } catch (cause) {
    throw new Error('Invalid GITHUB_APP_PRIVATE_KEY: must be an RSA private key', { cause })
  }
}

/** DER of version 0 and of the RSA object identifier (1.2.840.113549.1.1.1) with NULL parameters. */
const RSA_HEADER = [
  0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
]
const SEQUENCE = 0x30
const OCTET_STRING = 0x04

const wrapInPkcs8 = (key: Uint8Array): Uint8Array<ArrayBuffer> =>
  new Uint8Array(derElement(SEQUENCE, [...RSA_HEADER, ...derElement(OCTET_STRING, key)]))

/** Encodes a DER element with contents of 256 bytes or more. */
const derElement = (tag: number, contents: Iterable<number>): number[] => {
  const bytes = [...contents]
  return [tag, 0x82, bytes.length >> 8, bytes.length & 0xff, ...bytes]
}

const encode = (value: object): string =>
  base64Url(new TextEncoder().encode(JSON.stringify(value)).buffer as ArrayBuffer)
