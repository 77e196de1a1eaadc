import { Webhook } from 'standardwebhooks'
import { Webhook as SvixWebhook } from 'svix'
import { describe, expect, it } from 'vitest'
import { keyOf, secretProblem, sign } from '../../../src/outbound/webhooks/signature.ts'
import { drawFrom } from '../../faults/random.ts'
import { isExtended } from '../../support/extended.ts'

const ID = '0198f0d2-7c1a-7c3e-9b55-3f2f5c1d8e10'
const KEY_12 = 'a2V5LW9mLTEyLWJ5'
const KEY_24 = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz'
const KEY_32 = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const KEY_42 = 'MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAx'
const LENGTH = 'must have 8 to 64 characters'
const CHARACTERS = 'must consist of printable ASCII characters and must not start or end with a space'

const ascii = (text: string) => Buffer.from(text, 'latin1')
const base64 = (text: string) => Buffer.from(text, 'base64')

const decoded: [secret: string, key: Uint8Array][] = [
  [`whsec_${KEY_24}`, ascii('012345678901234567890123')],
  [`whsec_${KEY_32}`, ascii('01234567890123456789012345678901')],
  [`whsec_${KEY_42}`, ascii('012345678901234567890123456789012345678901')],
  [`whsec_${KEY_12}`, ascii('key-of-12-by')],
  ['whsec_0123456789abcdef', base64('0123456789abcdef')],
  ['whsec_YWJjZA==', ascii('abcd')],
  ['whsec_YWJjZA=', ascii('abcd')],
  ['whsec_YWJjZA', ascii('abcd')],
  ['whsec_YWJjZB==', ascii('abcd')],
  ['whsec_YWI=', ascii('ab')],
  ['whsec_YQ==', ascii('a')],
  ['whsec_abcde', base64('abcd')],
  ['whsec_abcde=', base64('abcd')],
  ['whsec_AAAA', Buffer.alloc(3)],
  ['whsec_++//++//', base64('++//++//')],
]

const raw: string[] = [
  'supersecret',
  'password',
  '12345678',
  'abcdefgh',
  KEY_24,
  'with inner blanks',
  'sym-bols_!"#$%&\'()*+,./:;<=>?@[]^`{|}~\\',
  'x'.repeat(64),
  'v1,whsec_YWJjZA==',
  'WHSEC_YWJjZA==',
  'whsec-YWJjZA==',
  'whsec YWJjZA==',
  'whsec_ab-_',
  'whsec_ab',
  'whsec_abc',
  'whsec_==',
  'whsec_===',
  'whsec_a===',
  'whsec_a=b=',
  'whsec_YWJj ZA==',
  'whsec_whsec_YWJjZA==',
  'whsec_a secret in words',
]

const refused: [secret: string, problem: string][] = [
  ['', LENGTH],
  ['1234567', LENGTH],
  ['whsec_', LENGTH],
  ['whsec_=', LENGTH],
  ['🔑'.repeat(7), LENGTH],
  ['x'.repeat(65), LENGTH],
  ['🔑'.repeat(64), CHARACTERS],
  ['ŁłŃńABCD', CHARACTERS],
  [' leading blank', CHARACTERS],
  ['trailing blank ', CHARACTERS],
  ['        ', CHARACTERS],
  ['tab\tinside', CHARACTERS],
  ['line\nbreak', CHARACTERS],
  ['nul\0inside', CHARACTERS],
  ['trailing line break\n', CHARACTERS],
  ['\ud800\ud800\ud800\ud800\ud800\ud800\ud800\ud800', CHARACTERS],
]

/** Verifies as a receiver does, with both official libraries; throws if either refuses. */
async function verify(body: string, signedWith: readonly string[], receiver: ConstructorParameters<typeof Webhook>) {
  const timestampSeconds = Math.floor(Date.now() / 1000)
  const headers = {
    'webhook-id': ID,
    'webhook-timestamp': String(timestampSeconds),
    'webhook-signature': await sign({ id: ID, timestampSeconds, body }, signedWith),
  }
  new SvixWebhook(...receiver).verify(body, headers)
  return new Webhook(...receiver).verify(body, headers)
}

/** Makes a receiver as the guide says: `whsec_` and base64 go to the default constructor, all others are raw. */
function receiverFor(secret: string): ConstructorParameters<typeof Webhook> {
  return isEncoded(secret) ? [secret] : [secret, { format: 'raw' }]
}

function isEncoded(secret: string): boolean {
  if (!secret.startsWith('whsec_') || endsWithStrayCharacter(secret)) return false
  try {
    new Webhook(secret)
    return true
  } catch {
    return false
  }
}

/** Tells whether a single character follows the last group of four, which the library ignores. */
function endsWithStrayCharacter(secret: string): boolean {
  const digits = secret.slice('whsec_'.length).replace(/=+$/, '')
  return digits.length % 4 === 1 && !/[A-Za-z0-9+/]$/.test(digits)
}

const libraryKey = (secret: string) => (new Webhook(...receiverFor(secret)) as unknown as { key: Uint8Array }).key

describe('a signing secret', () => {
  it.each(decoded)('is decoded: %j', async (secret, key) => {
    expect(secretProblem(secret)).toBeUndefined()
    expect(keyOf(secret)).toEqual(key)
    expect(await verify('{"a":1}', [secret], [secret])).toEqual({ a: 1 })
    await expect(verify('{"a":1}', [secret], [secret, { format: 'raw' }])).rejects.toThrow('No matching signature')
  })

  it.each(raw)('is used unchanged: %j', async (secret) => {
    expect(secretProblem(secret)).toBeUndefined()
    expect(keyOf(secret)).toEqual(ascii(secret))
    expect(await verify('{"a":1}', [secret], [secret, { format: 'raw' }])).toEqual({ a: 1 })
    await expect(verify('{"a":1}', [secret], [secret])).rejects.toThrow()
  })

  it.each(refused)('is refused, and could still sign: %j', async (secret, problem) => {
    expect(secretProblem(secret)).toBe(problem)
    expect(await sign({ id: ID, timestampSeconds: 1, body: '' }, [secret])).toMatch(/^v1,[A-Za-z0-9+/]{43}=$/)
  })

  it('counts characters, not UTF-16 units', () => {
    expect(secretProblem('🔑'.repeat(8))).toBe(CHARACTERS)
    expect(secretProblem('🔑'.repeat(33))).toBe(CHARACTERS)
    expect(secretProblem('🔑'.repeat(4))).toBe(LENGTH)
  })

  it('is raw if a stray character ends it, although the library would ignore that character', () => {
    expect(keyOf('whsec_abcd!')).toEqual(ascii('whsec_abcd!'))
    expect(keyOf('whsec_abcd_=')).toEqual(ascii('whsec_abcd_='))
    expect(() => new Webhook('whsec_abcd!')).not.toThrow()
  })

  it('is the key that the library uses, over 100,000 random secrets', () => {
    const random = drawFrom(1)
    const differing: string[] = []
    for (let i = 0; i < 100_000; i++) {
      const secret = randomSecret(random)
      if (!Buffer.from(keyOf(secret)).equals(libraryKey(secret))) differing.push(secret)
    }
    expect(differing).toEqual([])
  })
})

describe('the signature', () => {
  it('equals the one that other tools compute', async () => {
    const published = { id: 'msg_p5jXN8AQM9LWM0D4loKWxJek', timestampSeconds: 1614265330, body: '{"test": 2432232314}' }
    expect(await sign(published, ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'])).toBe(
      'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    )
    // The signatures come from `openssl dgst -sha256 -mac HMAC`, one with the key as text, one in hexadecimal.
    const message = { id: 'msg_1', timestampSeconds: 1700000000, body: '{"text":"Grüße, 世界 🚀"}' }
    expect(await sign(message, ['a plain secret', `whsec_${KEY_24}`])).toBe(
      'v1,yfSlT0J+NZBAj2Le7BqKi/HjS1sIMouxJIpaF3YWkFU= v1,W4YqAEichtzv+c+Gbf/R1OHxWim7J6LrLNaGR48RUG8=',
    )
  })

  const count = isExtended ? 10_000 : 2_000
  it(`verifies with both official libraries, over ${count} random secrets and bodies`, async () => {
    const random = drawFrom(2)
    for (let i = 0; i < count; i++) {
      const secret = randomSecret(random)
      const body = JSON.stringify({ type: 'v1.project.created', text: randomText(random) })
      expect(await verify(body, [secret], receiverFor(secret)), secret).toEqual(JSON.parse(body))
    }
  })

  it('verifies with the old and with the new secret while both are valid, each alone', async () => {
    const [before, after] = [`whsec_${KEY_24}`, `whsec_${KEY_32}`]
    expect(await verify('{"a":1}', [after, before], [after])).toEqual({ a: 1 })
    expect(await verify('{"a":1}', [after, before], [before])).toEqual({ a: 1 })
    expect(await verify('{"a":1}', [after], [after])).toEqual({ a: 1 })
    await expect(verify('{"a":1}', [after], [before])).rejects.toThrow('No matching signature')
    await expect(verify('{"a":1}', [before], [after])).rejects.toThrow('No matching signature')
  })

  it('has the order of the secrets', async () => {
    const message = { id: ID, timestampSeconds: 1700000000, body: '{}' }
    const secrets = Array.from({ length: 11 }, (_, i) => `secret number ${i}`)
    const each = await Promise.all(secrets.map((secret) => sign(message, [secret])))
    expect(await sign(message, secrets)).toBe(each.join(' '))
  })

  it('depends on the id, the time and the body', async () => {
    const message = { id: ID, timestampSeconds: 1700000000, body: '{}' }
    const variants = [
      message,
      { ...message, id: 'other' },
      { ...message, timestampSeconds: 1 },
      { ...message, body: '' },
    ]
    const signatures = await Promise.all(variants.map((variant) => sign(variant, ['a plain secret'])))
    expect(new Set(signatures).size).toBe(variants.length)
  })
})

type Random = (below: number) => number

const BASE64_DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
const PRINTABLE = Array.from({ length: 94 }, (_, i) => String.fromCharCode(0x21 + i)).join('')

const pick = (random: Random, alphabet: string, length: number) =>
  Array.from({ length }, () => alphabet[random(alphabet.length)]).join('')

/** Returns valid secrets of every kind, most of them base64 or almost. */
function randomSecret(random: Random): string {
  const length = 2 + random(57)
  const makers = [
    () => pick(random, PRINTABLE, 8 + random(57)),
    () => pick(random, BASE64_DIGITS, 8 + random(57)),
    () => `x${pick(random, `${PRINTABLE}     `, 6 + random(57))}x`,
    () => `whsec_${Buffer.from(pick(random, PRINTABLE, 1 + random(42))).toString('base64')}`,
    () => `whsec_${pick(random, BASE64_DIGITS, length)}`,
    () => `whsec_${pick(random, BASE64_DIGITS, Math.max(0, length - 3))}${'='.repeat(2 + random(2))}`,
    () => `whsec_${pick(random, `${BASE64_DIGITS}=-_!`, length)}`,
  ]
  return (makers[random(makers.length)] ?? makers[0])?.() ?? ''
}

const randomText = (random: Random) =>
  Array.from({ length: random(60) }, () => String.fromCodePoint(random(0x110000))).join('')
