import { describe, expect, it } from 'vitest'
import { METADATA_BYTES_MAX, readMetadata } from '../../../src/management/service-config/sso/metadata.ts'
import { keyDescriptor, metadataOf, signOn } from '../../support/saml.ts'

const ENTITY = 'https://idp.example.com/metadata'
const MIB = 1024 * 1024
const list = (...entities: string[]) =>
  `<md:EntitiesDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata">${entities.join('')}</md:EntitiesDescriptor>`
const entity = (id: string) => metadataOf(id, { prolog: '' })
const SERVICE = entity('https://sp.example.com').replaceAll('IDPSSO', 'SPSSO')
/** Repeats the text up to the size. */
const fill = (text: string, sizeBytes = MIB - 4_096) => text.repeat(Math.floor(sizeBytes / text.length))

it.each([
  ['as most write it', metadataOf(ENTITY)],
  ['without a certificate', metadataOf(ENTITY, { role: signOn() })],
  ['with its certificate for any use', metadataOf(ENTITY, { role: keyDescriptor(undefined, '') + signOn() })],
  [
    'with a certificate for encryption that cannot be read',
    metadataOf(ENTITY, { role: keyDescriptor('x', 'use="encryption"') + keyDescriptor() + signOn() }),
  ],
  [
    'under other prefixes',
    metadataOf(ENTITY)
      .replaceAll('md:', 'saml:')
      .replace('xmlns:md', 'xmlns:saml')
      .replaceAll('ds:', 'd:')
      .replace('xmlns:ds', 'xmlns:d'),
  ],
  ['without any prefix', metadataOf(ENTITY).replaceAll('md:', '').replace('xmlns:md=', 'xmlns=')],
  ['with a service provider beside', metadataOf(ENTITY, { beside: '<md:SPSSODescriptor/>' })],
  ['with character references', metadataOf(ENTITY.replace('idp', '&#105;dp'))],
  ['with a comment inside its certificate', metadataOf(ENTITY).replace('MIIB', 'MI<!-- x -->IB')],
  ['with its certificate as CDATA', metadataOf(ENTITY).replace(/(MIIB[^<]+)/, '<![CDATA[$1]]>')],
  ['in a list of one', list(entity(ENTITY))],
  ['in a list with service providers', list(SERVICE, entity(ENTITY), SERVICE)],
  ['with a place to sign on by POST', metadataOf(ENTITY).replace('HTTP-Redirect', 'HTTP-POST')],
  ['with line ends of Windows', metadataOf(ENTITY).replaceAll('\n', '\r\n')],
])('metadata is accepted %s', (_name, xml) => expect(readMetadata(xml)).toBe(ENTITY))

describe('metadata is refused', () => {
  it.each([
    ['nothing', '', /must be well-formed/],
    ['no XML', 'https://idp.example.com', /must be well-formed/],
    ['JSON', '{"entityID":"x"}', /must be well-formed/],
    ['a web page', '<html><body><br></body></html>', /must be SAML 2.0 metadata|must be well-formed/],
    ['what is cut off', metadataOf(ENTITY).slice(0, -10), /must be well-formed/],
    ['two roots', metadataOf(ENTITY) + metadataOf(ENTITY, { prolog: '' }), /must be well-formed/],
    ['an attribute twice', metadataOf(ENTITY, { attributes: 'entityID="https://other.example.com"' }), /duplicate/],
    ['a prefix of nothing', metadataOf(ENTITY).replace('xmlns:md', 'xmlns:other'), /prefix/],
    ['a control character', metadataOf(ENTITY, { beside: '\u0001' }), /must be well-formed/],
    ['an entity that nobody declared', metadataOf(ENTITY, { beside: '&foo;' }), /must be well-formed/],
    [
      'another namespace',
      metadataOf(ENTITY).replace('SAML:2.0:metadata', 'SAML:1.0:metadata'),
      /must be SAML 2.0 metadata/,
    ],
    ['an element of the name alone', '<EntityDescriptor entityID="x"/>', /must be SAML 2.0 metadata/],
    ['several entities', list(entity(ENTITY), entity('https://other.example.com')), /more than one/],
    [
      'an entity that is a provider twice',
      metadataOf(ENTITY, { beside: '<md:IDPSSODescriptor></md:IDPSSODescriptor>' }),
      /more than one/,
    ],
    ['a list without a provider', list(SERVICE), /must describe an identity provider/],
    ['a place to sign on by SOAP alone', metadataOf(ENTITY).replace('HTTP-Redirect', 'SOAP'), /SingleSignOnService/],
    ['no entity id', metadataOf('').replace('entityID=""', ''), /entityID/],
    ['an empty entity id', metadataOf(' '), /entityID/],
    ['an entity id that is too long', metadataOf('x'.repeat(1_025)), /1024/],
    ['an entity id under a prefix', metadataOf(ENTITY).replace(' entityID', ' md:entityID'), /entityID/],
    ['a service provider', metadataOf(ENTITY).replaceAll('IDPSSO', 'SPSSO'), /must describe an identity provider/],
    ['no place to sign on', metadataOf(ENTITY, { role: keyDescriptor() }), /SingleSignOnService/],
    [
      'a place to sign on without an address',
      metadataOf(ENTITY, { role: keyDescriptor() + signOn('') }),
      /SingleSignOnService/,
    ],
    [
      'a place that runs a script',
      metadataOf(ENTITY, { role: keyDescriptor() + signOn('javascript:alert(1)') }),
      /SingleSignOnService/,
    ],
    [
      'a certificate that cannot be parsed',
      metadataOf(ENTITY, { role: keyDescriptor('bm90IGE=') + signOn() }),
      /readable signing certificates/,
    ],
    [
      'a certificate that is not base64',
      metadataOf(ENTITY, { role: keyDescriptor('%%%') + signOn() }),
      /readable signing certificates/,
    ],
    [
      'an empty certificate',
      metadataOf(ENTITY, { role: keyDescriptor('') + signOn() }),
      /readable signing certificates/,
    ],
    [
      'a good certificate beside a bad one',
      metadataOf(ENTITY, { role: keyDescriptor() + keyDescriptor('eA==') + signOn() }),
      /readable signing certificates/,
    ],
  ])('with %s', (_name, xml, reason) => expect(() => readMetadata(xml)).toThrow(reason))

  const doctype = (subset: string) => metadataOf('&a;', { prolog: `<!DOCTYPE md:EntityDescriptor ${subset}>` })
  const laughs = Array.from({ length: 10 }, (_, n) => `<!ENTITY l${n + 1} "${`&l${n};`.repeat(10)}">`).join('')
  const hostile: [string, string, RegExp | undefined][] = [
    [
      'entities that grow a billion times',
      doctype(`[<!ENTITY l0 "lol">${laughs}<!ENTITY a "&l10;">]`),
      /document type/,
    ],
    ['an entity of a file', doctype('[<!ENTITY a SYSTEM "file:///etc/passwd">]'), /document type/],
    ['an entity of an address', doctype('[<!ENTITY a SYSTEM "http://169.254.169.254/">]'), /document type/],
    ['a document type elsewhere', doctype('SYSTEM "https://example.com/evil.dtd"'), /document type/],
    ['a document type without anything', doctype(''), /document type/],
    ['parameter entities', doctype('[<!ENTITY % p SYSTEM "file:///x"> %p;]'), /document type/],
    ['a document type of a megabyte', doctype(`[${fill('<!ENTITY x "y">')}]`), /document type/],
    ['elements nested without end', metadataOf(ENTITY, { beside: fill('<a>') }), /nested/],
    ['namespaces nested without end', metadataOf(ENTITY, { beside: fill('<a xmlns="u">') }), /nested/],
    ['an attribute of a megabyte', metadataOf(ENTITY, { attributes: `x="${fill('x')}"` }), undefined],
    [
      'a megabyte of attributes',
      metadataOf(ENTITY, { attributes: Array.from({ length: 80_000 }, (_, n) => `a${n}=""`).join(' ') }),
      undefined,
    ],
    [
      'a megabyte of namespaces',
      metadataOf(ENTITY, { attributes: Array.from({ length: 50_000 }, (_, n) => `xmlns:a${n}="u"`).join(' ') }),
      undefined,
    ],
    ['a megabyte of elements', metadataOf(ENTITY, { beside: fill('<a/>') }), undefined],
    ['a megabyte of references', metadataOf(ENTITY, { beside: fill('&#65;') }), undefined],
    ['a megabyte of instructions', metadataOf(ENTITY, { beside: fill('<?x?>') }), undefined],
    [
      'a megabyte of certificates',
      metadataOf(ENTITY, { beside: '', role: fill(keyDescriptor()) + signOn() }),
      undefined,
    ],
    ['a tag without end', metadataOf(ENTITY, { beside: fill('<') }), /must be well-formed/],
    ['a comment without end', metadataOf(ENTITY, { beside: `<!--${fill('x')}` }), /must be well-formed/],
    ['more than a megabyte', metadataOf(ENTITY, { beside: fill('x', MIB) }), new RegExp(`${METADATA_BYTES_MAX} bytes`)],
    ['more than a megabyte beyond ASCII', metadataOf(ENTITY, { beside: fill('é', MIB) }), /bytes/],
  ]
  it.each(hostile)('%s is refused or read in a short time', (_name, xml, reason) => {
    const startedAt = performance.now()
    if (reason) expect(() => readMetadata(xml)).toThrow(reason)
    else expect(readMetadata(xml)).toBe(ENTITY)
    expect(performance.now() - startedAt).toBeLessThan(20_000)
  })
})
