import { createHmac } from 'node:crypto'
import { isSameSecret } from './equal.ts'

/** Longer than clocks of machines differ. */
const VALID_SECONDS = 300

/** Trusted sessions over a WebSocket, or connections of a project's programs, which still need a password. */
export type TokenPurpose = 'websocket' | 'program'

interface TokenScope {
  purpose: TokenPurpose
  instance: string
}

const sign = (key: string, { purpose, instance }: TokenScope, expiresAt: string): string =>
  createHmac('sha256', key).update(`${purpose}\n${instance}\n${expiresAt}`).digest('base64url')

/** A token that stands for the host key within this scope, for five minutes. */
export function hostToken(key: string, scope: TokenScope, now = Date.now()): string {
  const expiresAt = String(Math.floor(now / 1000) + VALID_SECONDS)
  return `${expiresAt}.${sign(key, scope, expiresAt)}`
}

/**
 * Query parameters of a WebSocket that stand for the host key, because access logs record URLs. They open sessions of one instance
 * for five minutes. `user` is the login name `<role>.<instance>`.
 */
export function hostTokenQuery(key: string, user: string, now = Date.now()): string {
  const instance = user.slice(user.lastIndexOf('.') + 1)
  return `instance=${encodeURIComponent(instance)}&token=${hostToken(key, { purpose: 'websocket', instance }, now)}`
}

/** Whether a token was made with the key for this scope, and has not expired. */
export function isHostToken(key: string, token: string, scope: TokenScope, now = Date.now()): boolean {
  const [expiresAt = '', signature = ''] = token.split('.')
  return isSameSecret(signature, sign(key, scope, expiresAt)) && Number(expiresAt) * 1000 > now
}
