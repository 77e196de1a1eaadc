import { randomUUID } from 'node:crypto'
import { metadataOf } from './saml.ts'

const longDomains = Array.from({ length: 101 }, (_, n) => `d${n}.example.com`)
const deep = JSON.parse(`${'{"a":'.repeat(9)}1${'}'.repeat(9)}`)
export const mapped = (attribute: unknown) => ({ attribute_mapping: { keys: { mail: attribute } } })
export const XML = metadataOf('https://idp.example.com/metadata')

/** Bodies that both POST and PUT refuse, with the field that the reply names. */
export const BAD: [string, Record<string, unknown>, string][] = [
  ['both sources', { metadata_xml: XML, metadata_url: 'https://idp.example.com/' }, 'body.metadata_xml'],
  ['metadata that is not text', { metadata_xml: 1 }, 'body.metadata_xml'],
  ['metadata that is null', { metadata_xml: null }, 'body.metadata_xml'],
  ['empty metadata', { metadata_xml: '' }, 'body.metadata_xml'],
  ['metadata that is not XML', { metadata_xml: 'x' }, 'body.metadata_xml'],
  ['metadata with a document type', { metadata_xml: `<!DOCTYPE x []>${XML}` }, 'body.metadata_xml'],
  ['metadata with half a surrogate pair', { metadata_xml: `${XML}\ud800` }, 'body.metadata_xml'],
  ['metadata with a NUL', { metadata_xml: `${XML}\0` }, 'body.metadata_xml'],
  ['too much metadata', { metadata_xml: 'x'.repeat(1024 * 1024 + 1) }, 'body.metadata_xml'],
  ['an address that is not a URL', { metadata_url: 'idp' }, 'body.metadata_url'],
  ['an address without TLS', { metadata_url: 'http://idp.example.org/' }, 'body.metadata_url'],
  ['a scheme other than https', { metadata_url: 'file:///etc/passwd' }, 'body.metadata_url'],
  ['an address of this installation', { metadata_url: 'https://api.example.com/' }, 'body.metadata_url'],
  ['an IP address', { metadata_url: 'https://169.254.169.254/' }, 'body.metadata_url'],
  ['an internal name', { metadata_url: 'https://metadata.google.internal/' }, 'body.metadata_url'],
  [
    'an address that is too long',
    { metadata_url: `https://idp.example.org/${'x'.repeat(2_048)}` },
    'body.metadata_url',
  ],
  ['an address whose name does not exist', { metadata_url: `https://${randomUUID()}.idp.dev/` }, 'body.metadata_url'],
  ...[
    '',
    'example',
    'https://example.com',
    '*.example.com',
    'example.com:443',
    'example.com/',
    'a@example.com',
    '-a.com',
    'a-.com',
    'a..com',
    '.com',
    'example.com.',
    '1.2.3.4',
    'münchen.de',
    'a b.com',
    `${'a'.repeat(64)}.com`,
    `${'a.'.repeat(127)}com`,
  ].map((domain): [string, Record<string, unknown>, string] => [
    `the domain "${domain}"`,
    { domains: ['ok.example.com', domain] },
    'body.domains.1',
  ]),
  ['domains that are not a list', { domains: 'example.com' }, 'body.domains'],
  ['too many domains', { domains: longDomains }, 'body.domains'],
  ['a mapping without keys', { attribute_mapping: {} }, 'body.attribute_mapping.keys'],
  ['a mapping that is a list', { attribute_mapping: [] }, 'body.attribute_mapping'],
  ['a mapping to text', mapped('mail'), 'body.attribute_mapping.keys.mail'],
  ['a name that is not text', mapped({ name: 1 }), 'body.attribute_mapping.keys.mail.name'],
  ['an empty name', mapped({ name: '' }), 'body.attribute_mapping.keys.mail.name'],
  ['names that are not a list', mapped({ names: 'mail' }), 'body.attribute_mapping.keys.mail.names'],
  ['array that is not a boolean', mapped({ array: 'yes' }), 'body.attribute_mapping.keys.mail.array'],
  ['a default that is null', mapped({ default: null }), 'body.attribute_mapping.keys.mail.default'],
  [
    'a default that is 2,500 levels deep',
    mapped({ default: JSON.parse(`{"a":${'['.repeat(2_500)}${']'.repeat(2_500)}}`) }),
    'body.attribute_mapping.keys.mail.default',
  ],
  ['a default that cannot be stored', mapped({ default: { a: 'x\0' } }), 'body.attribute_mapping.keys.mail.default'],
  ['a default that is nested too deeply', mapped({ default: deep }), 'body.attribute_mapping.keys.mail.default'],
  ['a mapping that is too long', mapped({ default: 'x'.repeat(16 * 1024) }), 'body.attribute_mapping.keys'],
  [
    'too many attributes',
    { attribute_mapping: { keys: Object.fromEntries(longDomains.map((name) => [name, {}])) } },
    'body.attribute_mapping.keys',
  ],
  [
    'another name id format',
    { name_id_format: 'urn:oasis:names:tc:SAML:2.0:nameid-format:entity' },
    'body.name_id_format',
  ],
]
