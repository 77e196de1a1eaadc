import { decodeBase64Url } from 'hono/utils/encode'
import type { Claims } from './credential.ts'

/** The parts of a compact JWS (RFC 7515, 7.1). Nothing is verified yet. */
export interface Jws {
  /** Undefined if it is not a JSON object. */
  header: Claims | undefined
  /** Undefined if it is not a JSON object. */
  claims: Claims | undefined
  /** Bytes that the signature covers. */
  signed: ArrayBuffer
  signature: Uint8Array<ArrayBuffer>
}

/** Splits a compact JWS. Returns undefined if the text has another format. */
export function readJws(text: string): Jws | undefined {
  const [, header, claims, signature] = /^([\w-]+)\.([\w-]+)\.([\w-]*)$/.exec(text) ?? []
  if (header === undefined || claims === undefined || signature === undefined) return undefined
  return {
    header: decodeObject(header),
    claims: decodeObject(claims),
    signed: new TextEncoder().encode(`${header}.${claims}`).buffer as ArrayBuffer,
    signature: decode(signature) ?? new Uint8Array(),
  }
}

function decode(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return decodeBase64Url(text)
  } catch {
    return undefined
  }
}

function decodeObject(text: string): Claims | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(decodeBase64Url(text)))
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Claims) : undefined
  } catch {
    return undefined
  }
}
