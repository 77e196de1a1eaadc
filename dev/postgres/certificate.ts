import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { access, chown, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { DataFolder } from './data-folder.ts'

/** Postgres looks for these two in its data folder. */
const KEY = 'server.key'
const CERTIFICATE = 'server.crt'

export interface Certificate {
  key: string
  certificate: string
}

/** A certificate that the server signs itself: it keeps others from reading along, and proves nothing about the server. */
export async function ensureCertificate({ folder, owner }: DataFolder): Promise<Certificate> {
  const read = (name: string) => readFile(join(folder, name), 'utf8')
  if (await exists(join(folder, CERTIFICATE))) return { key: await read(KEY), certificate: await read(CERTIFICATE) }
  const { key, certificate } = selfSigned()
  // The key first: the certificate then tells that both are there.
  for (const [name, text] of [
    [KEY, key],
    [CERTIFICATE, certificate],
  ] as const) {
    const draft = join(folder, `${name}.new`)
    await writeFile(draft, text, { mode: 0o600 })
    if (owner.uid !== undefined) await chown(draft, owner.uid, owner.gid)
    await rename(draft, join(folder, name))
  }
  return { key, certificate }
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  )

function selfSigned(): Certificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const content = sequence(
    der(0xa0, VERSION_3),
    der(0x02, Buffer.from([1]), randomBytes(15)),
    ECDSA_WITH_SHA256,
    NAME,
    sequence(der(0x18, Buffer.from('20200101000000Z')), der(0x18, Buffer.from('99991231235959Z'))),
    NAME,
    publicKey.export({ format: 'der', type: 'spki' }),
    der(0xa3, sequence(sequence(SUBJECT_ALT_NAME, der(0x04, HOSTS)))),
  )
  const signature = der(0x03, Buffer.from([0]), sign('sha256', content, privateKey))
  const lines = sequence(content, ECDSA_WITH_SHA256, signature).toString('base64').replaceAll(/.{64}/g, '$&\n').trim()
  return {
    key: privateKey.export({ format: 'pem', type: 'pkcs8' }).toString(),
    certificate: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
  }
}

/** Distinguished Encoding Rules: a tag, the length of what follows, and that. */
function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts)
  const { length } = body
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...size]), body])
}
const sequence = (...parts: readonly Uint8Array[]) => der(0x30, ...parts)
const oid = (hex: string) => der(0x06, Buffer.from(hex, 'hex'))

const VERSION_3 = der(0x02, Buffer.from([2]))
const COMMON_NAME = oid('550403')
const SUBJECT_ALT_NAME = oid('551d11')
const ECDSA_WITH_SHA256 = sequence(oid('2a8648ce3d040302'))
const NAME = sequence(der(0x31, sequence(COMMON_NAME, der(0x0c, Buffer.from('localhost')))))
const HOSTS = sequence(der(0x82, Buffer.from('localhost')), der(0x87, Buffer.from([127, 0, 0, 1])))
