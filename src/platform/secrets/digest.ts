/** SHA-256 in hex. */
export async function sha256Of(data: string | Uint8Array<ArrayBuffer>): Promise<string> {
  const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data
  return hexOf(await crypto.subtle.digest('SHA-256', bytes))
}

/** HMAC-SHA256 in hex. */
export async function hmacOf(key: string, text: string): Promise<string> {
  const algorithm = { name: 'HMAC', hash: 'SHA-256' }
  const imported = await crypto.subtle.importKey('raw', new TextEncoder().encode(key), algorithm, false, ['sign'])
  return hexOf(await crypto.subtle.sign('HMAC', imported, new TextEncoder().encode(text)))
}

const hexOf = (bytes: ArrayBuffer): string => Buffer.from(bytes).toString('hex')
