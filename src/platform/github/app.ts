import { createPrivateKey, createSign, type KeyObject } from 'node:crypto'
import type * as z from 'zod'
import type { GithubConfig } from '../../config.ts'

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

/** GitHub's clock may be slow. */
const CLOCK_SKEW_SECONDS = 60
/** GitHub accepts at most ten minutes. */
const VALID_SECONDS = 540

/** Creates a JWT that authenticates the App for nine minutes. Throws if the private key is invalid. */
export function appToken({ id, privateKey }: GithubApp, now: Date): string {
  const seconds = Math.floor(now.getTime() / 1000)
  const claims = { iat: seconds - CLOCK_SKEW_SECONDS, exp: seconds + VALID_SECONDS, iss: id }
  const signed = `${encode({ alg: 'RS256', typ: 'JWT' })}.${encode(claims)}`
  return `${signed}.${createSign('RSA-SHA256').update(signed).sign(importKey(privateKey), 'base64url')}`
}

function importKey(pem: string): KeyObject {
  try {
    // A setting of a single line has line breaks written as `\n`.
    const key = createPrivateKey(pem.replaceAll('\\n', '\n'))
    if (key.asymmetricKeyType === 'rsa') return key
  } catch (cause) {
    throw new Error('Invalid GITHUB_APP_PRIVATE_KEY: must be a private key in PEM format', { cause })
  }
  throw new Error('Invalid GITHUB_APP_PRIVATE_KEY: must be an RSA private key')
}

const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')
