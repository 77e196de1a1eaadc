import { setImmediate } from 'node:timers/promises'
import { DrizzleQueryError } from 'drizzle-orm'
import { describe, expect, it } from 'vitest'
import { tickEveryMinute } from '../../dev/cron.ts'
import { openLogOutput } from '../../dev/log-output.ts'
import { readableLine } from '../../dev/log-text.ts'
import { readSettings } from '../../dev/settings.ts'
import { hostLogLine } from '../../host/log.ts'
import { describeError, logLine } from '../../src/platform/http/log.ts'
import { newOrganization, workerLogs } from '../support/api.ts'

const AT = '2026-11-24T12:00:00.123Z'
const TIME = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}$/
const entry = (fields: object) => JSON.stringify({ at: AT, level: 'info', event: 'test', ...fields })

describe('a log line', () => {
  it('begins with its time in ISO 8601, whichever process writes it', async () => {
    const since = Date.now()
    const { owner } = await newOrganization()
    const { headers } = await owner.get('/v1/profile')
    const [request] = await workerLogs(headers.get('x-request-id') ?? '')
    for (const line of [request ?? '', logLine('warn', 'x'), hostLogLine('x', {})]) {
      const { at } = JSON.parse(line)
      expect(line).toMatch(/^\{"at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","level":"/)
      expect(Date.parse(at)).toBeGreaterThanOrEqual(since - 1_000)
      expect(Date.parse(at)).toBeLessThanOrEqual(Date.now())
    }
  })

  it('of the host has the level of an error if it reports one', () => {
    expect(JSON.parse(hostLogLine('a', { error: 'broken' }))).toMatchObject({ level: 'error', error: 'broken' })
    expect(JSON.parse(hostLogLine('a', { error: undefined }))).toMatchObject({ level: 'info' })
  })
})

describe('an error', () => {
  const failed = new DrizzleQueryError('select $1', ['one\n    at my house', 'two'], new Error('broken'))

  it('is described with its cause and its stack, without the parameters of the query', () => {
    const text = describeError(failed)
    expect(text).toMatch(/^Error: Failed query: select \$1\n {4}at .*log\.test\.ts/)
    expect(text).toContain(' <- Error: broken\n    at ')
    expect(text).not.toMatch(/params|one|my house|two/)
  })
})

describe('the readable format', () => {
  const textOf = (fields: object) => {
    const [time = '', ...rest] = readableLine(entry(fields)).split('  ')
    expect(time).toMatch(TIME)
    return rest.join('  ')
  }

  it('shows requests as method, path, status and time taken', () => {
    const request = { event: 'request', request_id: 'r', method: 'GET', path: '/v1/profile', status: 200, ms: 1.5 }
    expect(textOf({ ...request, route: 'v1-get-profile' })).toBe(
      'request  GET /v1/profile 200 1.5 ms  route=v1-get-profile',
    )
  })

  it('shows the level and the request only if the line is not routine', () => {
    const failed = { event: 'failed', request_id: 'r', code: 'x' }
    expect(textOf({ ...failed, level: 'error' })).toBe('ERROR failed  request_id=r  code=x')
    expect(textOf(failed)).toBe('failed  code=x')
  })

  it.each([
    ['a line feed', 'one\ntwo', '"one\\ntwo"'],
    ['an escape sequence', '\u001b[2Jgone', '"\\u001b[2Jgone"'],
    ['an eight-bit control', '\u009b2J', '"\\u009b2J"'],
    ['nothing', '', '""'],
    ['an object', { a: [1] }, '{"a":[1]}'],
  ])('keeps %s on its line and out of the terminal', (_, value, text) => {
    expect(textOf({ value })).toBe(`test  value=${text}`)
  })

  it('shows text that is not a log line unchanged, with a time', () => {
    const [time = '', text] = readableLine('workerd: something').split('  ')
    expect([TIME.test(time), text]).toEqual([true, '"workerd: something"'])
  })
})

describe('the clock of the cron', () => {
  it('logs a failed run, unless the end of the installation cut it off', async () => {
    const lines: string[] = []
    const clock = tickEveryMinute(
      () => Promise.reject(new Error('broken')),
      (line) => lines.push(line),
    )
    await expect.poll(() => lines.length).toBe(1)
    clock.stop()
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      level: 'error',
      event: 'cron_tick_failed',
      error: 'Error: broken',
    })
    const failing = Promise.withResolvers<void>()
    tickEveryMinute(
      () => failing.promise,
      (line) => lines.push(line),
    ).stop()
    failing.reject(new Error('cut off'))
    await setImmediate()
    expect(lines).toHaveLength(1)
  })
})

describe('the output', () => {
  it('is JSON, line by line, whatever is written', () => {
    const written: string[] = []
    const output = openLogOutput('json', (line) => written.push(line))
    for (const line of [entry({}), '{"level":"info"}', 'plain "text"']) output.onLine(line)
    output.event('info', 'started', { ms: 1 })
    expect(written[0]).toBe(entry({}))
    expect(written.map((line) => JSON.parse(line))).toMatchObject([
      { event: 'test' },
      { level: 'warn', event: 'message', message: '{"level":"info"}', at: expect.any(String) },
      { event: 'message', message: 'plain "text"' },
      { event: 'started', ms: 1 },
    ])
  })

  it.each([
    [{}, true, 'text'],
    [{}, false, 'json'],
    [{ LOG_FORMAT: 'json' }, true, 'json'],
    [{ LOG_FORMAT: 'text' }, false, 'text'],
  ] as const)('with %j on a terminal (%j) is %s', (env, isTerminal, format) => {
    expect(readSettings(env, isTerminal).logFormat).toBe(format)
  })

  it('refuses another format', () => {
    expect(() => readSettings({ LOG_FORMAT: 'xml' })).toThrow('LOG_FORMAT=xml is not a format: give json or text.')
  })
})
