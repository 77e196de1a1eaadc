import { createHmac } from 'node:crypto'
import { isSameSecret } from './equal.ts'

/** Longer than clocks of machines differ. */
const VALID_SECONDS = 300

const sign = (key: string, instance: string, expiresAt: string): string =>
  createHmac('sha256', key).update(`websocket\n${instance}\n${expiresAt}`).digest('base64url')

/**
 * Query parameters of a WebSocket that stand for the host key, because access logs record URLs. They open sessions of one instance
 * for five minutes. `user` is the login name `<role>.<instance>`.
 */
export function hostTokenQuery(key: string, user: string, now = Date.now()): string {
  const instance = user.slice(user.lastIndexOf('.') + 1)
  const expiresAt = String(Math.floor(now / 1000) + VALID_SECONDS)
  return `instance=${encodeURIComponent(instance)}&token=${expiresAt}.${sign(key, instance, expiresAt)}`
}

/** Whether a token was made with the key for the instance, and has not expired. */
export function isHostToken(key: string, token: string, instance: string, now = Date.now()): boolean {
  const [expiresAt = '', signature = ''] = token.split('.')
  return isSameSecret(signature, sign(key, instance, expiresAt)) && Number(expiresAt) * 1000 > now
}
