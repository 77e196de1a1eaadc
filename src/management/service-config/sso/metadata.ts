import { X509Certificate } from 'node:crypto'
import { SaxesParser, type SaxesTagNS } from 'saxes'
import { UnusableValue } from '../../../platform/http/unusable-value.ts'

export const METADATA_BYTES_MAX = 1024 * 1024
const DEPTH_MAX = 64
const ENTITY_ID_LENGTH_MAX = 1_024
const REASON_LENGTH_MAX = 200

const PREFIXES: Record<string, string> = {
  'urn:oasis:names:tc:SAML:2.0:metadata': 'md',
  'http://www.w3.org/2000/09/xmldsig#': 'ds',
}

const LIST = 'md:EntitiesDescriptor'
const ROOT = 'md:EntityDescriptor'
const IDP = `${ROOT}/md:IDPSSODescriptor`
const SIGN_ON = `${IDP}/md:SingleSignOnService`
const KEY = `${IDP}/md:KeyDescriptor`
const CERTIFICATE = `${KEY}/ds:KeyInfo/ds:X509Data/ds:X509Certificate`
const MATCHED_DEPTH_MAX = CERTIFICATE.split('/').length

/** Bindings that work in a browser. */
const BINDINGS = ['HTTP-Redirect', 'HTTP-POST'].map((name) => `urn:oasis:names:tc:SAML:2.0:bindings:${name}`)

interface Entity {
  id: string
  roles: number
  signOnServices: number
  certificates: string[]
}

const newEntity = (id: string): Entity => ({ id, roles: 0, signOnServices: 0, certificates: [] })

/** Validates the metadata of a SAML 2.0 identity provider, its sign-on address and its certificates. Returns its entity ID. */
export function readMetadata(xml: string): string {
  if (new TextEncoder().encode(xml).length > METADATA_BYTES_MAX) {
    throw new UnusableValue(`must have at most ${METADATA_BYTES_MAX} bytes`)
  }
  const [provider, ...others] = findEntities(xml).filter(({ roles }) => roles > 0)
  if (!provider) throw new UnusableValue('must describe an identity provider: it has no IDPSSODescriptor')
  if (others.length > 0 || provider.roles > 1) {
    throw new UnusableValue('must describe only one identity provider: it has more than one IDPSSODescriptor')
  }
  const { id, signOnServices, certificates } = provider
  if (id === '' || id.length > ENTITY_ID_LENGTH_MAX) {
    throw new UnusableValue(`must have an entityID of 1 to ${ENTITY_ID_LENGTH_MAX} characters`)
  }
  if (signOnServices === 0)
    throw new UnusableValue('must have a SingleSignOnService with an address for HTTP-Redirect or HTTP-POST')
  for (const certificate of certificates) requireCertificate(certificate)
  return id
}

/** Parses the text in one pass. Entities are not expanded, and a document type is rejected. */
function findEntities(xml: string): Entity[] {
  const found: Entity[] = []
  const path: string[] = []
  let forSignatures = false
  let certificate: string | undefined
  const parser = new SaxesParser({ xmlns: true })
  const pathInEntity = () => {
    const inEntity = path[0] === LIST ? path.slice(1) : path
    return inEntity.length > MATCHED_DEPTH_MAX ? '' : inEntity.join('/')
  }
  const appendText = (text: string) => {
    if (certificate !== undefined) certificate += text
  }
  parser.on('error', ({ message }) => {
    throw new UnusableValue(`must be well-formed XML: ${message.slice(0, REASON_LENGTH_MAX)}`)
  })
  parser.on('doctype', () => {
    throw new UnusableValue('must not have a document type definition')
  })
  parser.on('opentag', (tag) => {
    if (path.length === DEPTH_MAX) throw new UnusableValue(`must not be nested deeper than ${DEPTH_MAX} levels`)
    path.push(nameOf(tag))
    const position = pathInEntity()
    if (path.length === 1) requireRoot(tag)
    const entity = found.at(-1)
    if (position === ROOT) found.push(newEntity(attributeOf(tag, 'entityID').trim()))
    else if (position === IDP && entity) entity.roles += 1
    else if (position === SIGN_ON && entity && isUsable(tag)) entity.signOnServices += 1
    else if (position === KEY) forSignatures = attributeOf(tag, 'use') !== 'encryption'
    else if (position === CERTIFICATE && forSignatures) certificate = ''
  })
  parser.on('text', appendText)
  parser.on('cdata', appendText)
  parser.on('closetag', () => {
    if (certificate !== undefined && pathInEntity() === CERTIFICATE) {
      found.at(-1)?.certificates.push(certificate)
      certificate = undefined
    }
    path.pop()
  })
  parser.write(xml).close()
  return found
}

const nameOf = ({ uri, local }: SaxesTagNS): string => `${PREFIXES[uri] ?? ''}:${local}`

/** Reads an attribute without a prefix. */
const attributeOf = ({ attributes }: SaxesTagNS, name: string): string =>
  Object.hasOwn(attributes, name) ? (attributes[name]?.value ?? '') : ''

function requireRoot(tag: SaxesTagNS): void {
  if (![ROOT, LIST].includes(nameOf(tag))) {
    throw new UnusableValue('must be SAML 2.0 metadata: its root must be an EntityDescriptor or an EntitiesDescriptor')
  }
}

const isUsable = (tag: SaxesTagNS): boolean =>
  BINDINGS.includes(attributeOf(tag, 'Binding')) && isAddress(attributeOf(tag, 'Location'))

const isAddress = (text: string): boolean => ['https:', 'http:'].includes(URL.parse(text)?.protocol ?? '')

function requireCertificate(base64: string): void {
  try {
    const bytes = Uint8Array.from(atob(base64.replace(/\s/g, '')), (character) => character.charCodeAt(0))
    new X509Certificate(bytes)
  } catch (cause) {
    throw new UnusableValue('must have readable signing certificates', { cause })
  }
}
