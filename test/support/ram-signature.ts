import { createHash, createHmac } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest()

/** Encodes as AWS does: everything but letters, digits and four marks. */
const encode = (text: string) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`)

interface Signed {
  method: string
  url: URL
  headers: IncomingHttpHeaders
  body: string
}

interface Signer {
  accessKeyId: string
  secretAccessKey: string
  region: string
}

const SKEW_MS_MAX = 5 * 60_000

/** Returns the code of the error with which AWS refuses a signature of version 4; undefined if it is valid. */
export function signatureProblem({ method, url, headers, body }: Signed, signer: Signer): string | undefined {
  const form = /^AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/
  const [, credential = '', signedHeaders = '', signature] = form.exec(headers.authorization ?? '') ?? []
  if (!signature) return 'MissingAuthenticationTokenException'
  const date = String(headers['x-amz-date'])
  const scope = `${date.slice(0, 8)}/${signer.region}/ram/aws4_request`
  if (credential !== `${signer.accessKeyId}/${scope}`) return 'UnrecognizedClientException'
  const at = Date.parse(date.replace(/^(....)(..)(..)T(..)(..)(..)Z$/, '$1-$2-$3T$4:$5:$6Z'))
  if (!(Math.abs(Date.now() - at) < SKEW_MS_MAX)) return 'InvalidSignatureException'
  const names = signedHeaders.split(';')
  if (!names.includes('host') || !names.includes('x-amz-date')) return 'InvalidSignatureException'
  const query = [...url.searchParams].map(([name, value]) => `${encode(name)}=${encode(value)}`).sort()
  const canonical = [
    method,
    url.pathname,
    query.join('&'),
    ...names.map((name) => `${name}:${String(headers[name]).trim().replace(/ +/g, ' ')}`),
    '',
    signedHeaders,
    sha256(body),
  ].join('\n')
  const stringToSign = ['AWS4-HMAC-SHA256', date, scope, sha256(canonical)].join('\n')
  const key = scope.split('/').reduce<string | Buffer>(hmac, `AWS4${signer.secretAccessKey}`)
  return hmac(key, stringToSign).toString('hex') === signature ? undefined : 'InvalidSignatureException'
}
