import { randomUUID } from 'node:crypto'
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
import { setName } from './api.ts'
import { newReceiver } from './receiver.ts'

/** Makes a key of another signer. */
export async function newForeignKey(alg = 'ES256', kid: string = randomUUID()) {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
  const part = await exportJWK(publicKey)
  return {
    kid,
    part,
    /** The key as the issuer publishes it. */
    jwk: { ...part, kid, alg, use: 'sig' },
    privateJwk: { ...(await exportJWK(privateKey)), kid, alg },
    sign: (claims: JWTPayload, header: { kid?: string } = { kid }) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg, ...header })
        .setIssuedAt()
        .setExpirationTime('1h')
        .sign(privateKey),
  }
}
export type ForeignKey = Awaited<ReturnType<typeof newForeignKey>>

const PUBLIC = { A: ['93.184.215.14'], ttl: 0 }

/** Starts an OpenID provider for one test: its name leads to a server of the test's own, which serves `documents`. */
export async function newIssuer(keys: { jwk: unknown }[], path = '') {
  const host = `${randomUUID()}.issuers.dev`
  const issuer = `https://${host}${path}`
  const documents = new Map<string, unknown>()
  const publish = (published: { jwk: unknown }[]) => documents.set('/jwks', { keys: published.map(({ jwk }) => jwk) })
  documents.set(`${path.replace(/\/$/, '')}/.well-known/openid-configuration`, {
    issuer,
    jwks_uri: `https://${host}/jwks`,
  })
  publish(keys)
  const receiver = await newReceiver((request, response) => {
    const document = documents.get(request.url ?? '')
    if (document === undefined) response.writeHead(404).end()
    else response.end(typeof document === 'string' ? document : JSON.stringify(document))
  })
  await setName(host, PUBLIC, new URL(receiver.url).origin)
  const paths = () => receiver.received.map((request) => request.path)
  return { host, issuer, jwksUrl: `https://${host}/jwks`, documents, publish, answer: receiver.answer, paths }
}
