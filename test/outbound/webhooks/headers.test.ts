import { describe, expect, it } from 'vitest'
import { headerProblem } from '../../../src/outbound/webhooks/delivery-headers.ts'

const RESERVED = 'is reserved and cannot be set'
const NAME = 'must have a name of letters, digits and hyphens'
const VALUE = 'must have a value of printable ASCII characters, spaces and tabs'

const reservedNames = `user-agent keep-alive proxy-authenticate proxy-authorization te trailers transfer-encoding
  upgrade age cache-control clear-site-data expires pragma warning content-length content-type content-encoding
  content-language content-location host connection expect trailer cookie2 set-cookie date via forwarded cdn-loop
  accept-encoding`.split(/\s+/)
const reservedPrefixes = ['webhook-', 'svix-', 'cf-', 'sec-', 'proxy-', 'x-forwarded-', 'x-amz-', 'x-goog', 'x-azure-']

const capitalized = (name: string) => name.replace(/\b\w/g, (letter) => letter.toUpperCase())
const spellings = (name: string) => [name, name.toUpperCase(), capitalized(name)]
const many = (count: number, value = 'v') =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`x-${i}`, value]))

describe('custom headers', () => {
  it.each(reservedNames.flatMap(spellings))('refuse the name %s', (name) => {
    expect(headerProblem({ 'X-Fine': 'yes', [name]: 'value' })).toEqual({ name, problem: RESERVED })
  })

  it.each(reservedPrefixes.flatMap((prefix) => [prefix, `${prefix}any`]).flatMap(spellings))(
    'refuse names like %s',
    (name) => {
      expect(headerProblem({ [name]: 'value' })).toEqual({ name, problem: expect.stringContaining(RESERVED) })
    },
  )

  it.each([
    'Authorization',
    'authorization',
    'Cookie',
    'Accept',
    'Origin',
    'Referer',
    'X-Api-Key',
    'x-real-ip',
    'X-Forwarded',
    'x-amzn-trace',
    'x-svix',
    'webhook',
    'webhooks-id',
    'cf',
    'proxy',
    'secret',
    'hosts',
    'date-of-birth',
    'constructor',
    'toString',
    '1',
    '-',
  ])('accept %s', (name) => {
    expect(headerProblem({ [name]: 'value' })).toBeUndefined()
  })

  it.each(['', ' ', 'a b', 'a_b', 'a:b', 'a.b', 'Ünï', 'a\n', 'a\0', 'host ', '__proto__'])(
    'refuse the name %j',
    (name) => {
      expect(headerProblem(Object.fromEntries([[name, 'value']]))).toEqual({ name, problem: NAME })
    },
  )

  it.each(['a\r\nx-injected: 1', 'a\n', '\r', 'nul\0', '\x01', '\x7f', 'é', '世', '\x1b[0m', '\ud800'])(
    'refuse the value %j',
    (value) => {
      expect(headerProblem({ 'X-Name': value })).toEqual({ name: 'X-Name', problem: VALUE })
    },
  )

  it.each(['', ' ', '\t', 'Bearer a.b-c_d~e+f/g==', '{"json":"too"}', ' blanks around '])(
    'accept the value %j',
    (value) => {
      expect(headerProblem({ 'X-Name': value })).toBeUndefined()
    },
  )

  it('may have 128 characters in a name and 4,096 bytes in a value', () => {
    expect(headerProblem({ ['n'.repeat(128)]: 'v'.repeat(4096) })).toBeUndefined()
    const name = 'n'.repeat(129)
    expect(headerProblem({ [name]: 'v' })).toEqual({ name, problem: 'must have a name of at most 128 characters' })
    expect(headerProblem({ n: 'v'.repeat(4097) })).toEqual({
      name: 'n',
      problem: 'must have a value of at most 4096 bytes',
    })
  })

  it('are at most 20', () => {
    expect(headerProblem({})).toBeUndefined()
    expect(headerProblem(many(20))).toBeUndefined()
    expect(headerProblem(many(21))).toEqual({ name: 'x-20', problem: 'is too many: at most 20 headers are allowed' })
  })

  it('have at most 16 KiB, names and values together', () => {
    const full = { a: 'v'.repeat(4095), b: 'v'.repeat(4095), c: 'v'.repeat(4095), d: 'v'.repeat(4095) }
    expect(headerProblem(full)).toBeUndefined()
    expect(headerProblem({ ...full, e: '' })).toEqual({
      name: 'e',
      problem: 'is too long: all headers together may have at most 16384 bytes',
    })
  })

  it('may not repeat a name in another case', () => {
    expect(headerProblem({ 'X-Key': '1', 'x-other': '2', 'x-KEY': '3' })).toEqual({
      name: 'x-KEY',
      problem: 'is set twice: names are case-insensitive',
    })
  })

  it('reach the request unchanged, every character of them', () => {
    const printable = Array.from({ length: 95 }, (_, i) => String.fromCharCode(0x20 + i)).join('')
    const headers = { 'X-Printable': `a${printable}\tz`, 'X-Empty': '', '1': 'digit', '-': 'hyphen' }
    expect(headerProblem(headers)).toBeUndefined()
    expect(Object.fromEntries(new Request('http://localhost', { headers }).headers)).toEqual({
      'x-printable': `a${printable}\tz`,
      'x-empty': '',
      '1': 'digit',
      '-': 'hyphen',
    })
  })
})
