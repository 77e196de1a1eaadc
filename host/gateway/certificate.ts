import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { errorCode } from '../../dev/start-error.ts'
import { replaceFile } from '../instances/files.ts'

const KEY = 'server.key'
const CERTIFICATE = 'server.crt'

export interface Certificate {
  key: string
  certificate: string
}

/** Reads the certificate in the folder, or creates a self-signed one, which encrypts but does not authenticate the server. */
export async function ensureCertificate(folder: string): Promise<Certificate> {
  const found = await readCertificate(folder)
  if (found) return found
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const { key, certificate } = createSelfSigned()
  // The key is written first: a certificate file means that both files are complete.
  await replaceFile(join(folder, KEY), key)
  await replaceFile(join(folder, CERTIFICATE), certificate)
  return { key, certificate }
}

async function readCertificate(folder: string): Promise<Certificate | undefined> {
  try {
    const certificate = await readFile(join(folder, CERTIFICATE), 'utf8')
    return { key: await readFile(join(folder, KEY), 'utf8'), certificate }
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
}

function createSelfSigned(): Certificate {
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

/** Encodes by the Distinguished Encoding Rules: a tag, the length of the content, and the content. */
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
