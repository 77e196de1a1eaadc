import { describe, expect, test } from 'vitest'
import { SqlResultTooLarge } from '../../src/engine/engine-errors.ts'
import { escapeJson, joinText } from '../../src/engine/json-bytes.ts'
import { rowWriter } from '../../src/engine/json-rows.ts'
import { encoderOf, parameterText } from '../../src/engine/value-encoders.ts'

const [BOOL, INT8, FLOAT8, NUMERIC, JSONB, TEXT] = [16, 20, 701, 1700, 3802, 25]
const [BOOLS, INT4S, INT8S, FLOAT8S, TEXTS, JSONBS, BOXES] = [1000, 1007, 1016, 1022, 1009, 3807, 1020]

describe('a value of Postgres as JSON', () => {
  test.each([
    ['boolean', BOOL, 't', 'true'],
    ['safe bigint', INT8, '9007199254740991', '9007199254740991'],
    ['unsafe bigint', INT8, '-9007199254740993', '"-9007199254740993"'],
    ['float', FLOAT8, '1e-05', '1e-05'],
    ['not a number', FLOAT8, 'NaN', '"NaN"'],
    ['infinity', FLOAT8, '-Infinity', '"-Infinity"'],
    ['numeric', NUMERIC, '1.10', '"1.10"'],
    ['json as it is', JSONB, '{"a": 1.00000000000000000001}', '{"a": 1.00000000000000000001}'],
    ['text', TEXT, 'a"\\\n\u2028é', JSON.stringify('a"\\\n\u2028é')],
    ['unknown type', 999_999, '(1,"a b")', '"(1,\\"a b\\")"'],
    ['empty array', INT4S, '{}', '[]'],
    ['integers with null', INT4S, '{1,NULL,-3}', '[1,null,-3]'],
    ['nested array', INT4S, '{{1,2},{3,4}}', '[[1,2],[3,4]]'],
    ['array with its own bounds', INT4S, '[2:3]={1,2}', '[1,2]'],
    ['nested array with its own bounds', INT4S, '[0:0][-1:0]={{1,2}}', '[[1,2]]'],
    ['big integers', INT8S, '{1,9007199254740993}', '[1,"9007199254740993"]'],
    ['booleans', BOOLS, '{t,f}', '[true,false]'],
    ['floats', FLOAT8S, '{1.5,Infinity}', '[1.5,"Infinity"]'],
    ['texts', TEXTS, '{a,"b,}\\"\\\\","",NULL,"NULL"," x "}', '["a","b,}\\"\\\\","",null,"NULL"," x "]'],
    ['json array', JSONBS, '{"{\\"a\\": [1, \\"x\\\\\\\\y\\"]}",NULL,1}', '[{"a": [1, "x\\\\y"]},null,1]'],
    ['boxes, which semicolons separate', BOXES, '{(1,1),(0,0);(2,2),(0,0)}', '"{(1,1),(0,0);(2,2),(0,0)}"'],
  ])('%s', (_, type, text, expected) => {
    expect(encoderOf(type)(text)).toBe(expected)
    expect(() => JSON.parse(expected)).not.toThrow()
  })
})

describe('a JSON value as a parameter', () => {
  test.each([
    [null, null],
    [undefined, null],
    [true, 'true'],
    [1.5, '1.5'],
    ['a', 'a'],
    [{ a: 1 }, '{"a":1}'],
    [[], '{}'],
    [[1, null, 'a"\\'], '{"1",NULL,"a\\"\\\\"}'],
    [[[1], [2]], '{{"1"},{"2"}}'],
    [[{ a: 1 }, 2], '[{"a":1},2]'],
  ])('%j', (value, expected) => {
    expect(parameterText(value)).toBe(expected)
  })
})

const unexpected = (error: Error) => expect.fail(error.message)

describe('rowWriter', () => {
  test('writes rows as objects; the last of equal names wins', () => {
    const rows = rowWriter(1000, unexpected)
    rows.describe([
      { name: 'a', dataTypeID: 23 },
      { name: 'a"b', dataTypeID: TEXT },
      { name: 'a', dataTypeID: BOOL },
    ])
    rows.row(['1', null, 't'])
    expect(joinText(rows.result())).toBe('[{"a":true,"a\\"b":null}]')
  })

  test('keeps the order and the number of many rows', () => {
    const rows = rowWriter(1_000_000, unexpected)
    rows.describe([{ name: 'i', dataTypeID: 23 }])
    for (let i = 0; i < 1234; i += 1) rows.row([String(i)])
    const json = joinText(rows.result())
    expect(JSON.parse(json)).toEqual(Array.from({ length: 1234 }, (_, i) => ({ i })))
  })

  test('starts again with each description and each reset', () => {
    const rows = rowWriter(1000, unexpected)
    rows.describe([{ name: 'i', dataTypeID: 23 }])
    rows.row(['1'])
    rows.reset()
    expect(joinText(rows.result())).toBe('[]')
  })

  test('gives the same result for a row in parts as for a whole row', () => {
    const fields = [25, 23, 25, 3802, 1007, 25, 25].map((dataTypeID, n) => ({
      name: n === 6 ? 'c2' : `c${n}`,
      dataTypeID,
    }))
    const values = ['a"\n😀', '1', 'gone', '{"b": 1}', '{1,2}', null, '']
    const [whole, parts] = [rowWriter(1000, unexpected), rowWriter(1000, unexpected)]
    for (const rows of [whole, parts]) rows.describe(fields)
    for (let n = 0; n < 2; n++) {
      whole.row(values)
      parts.beginRow()
      for (const [index, value] of values.entries()) {
        parts.beginValue(index, value === null)
        for (const byte of Buffer.from(value ?? '')) parts.part(Uint8Array.of(byte))
        if (value !== null) parts.endValue()
      }
      parts.endRow()
    }
    expect(JSON.parse(joinText(parts.result()))).toEqual(JSON.parse(joinText(whole.result())))
  })

  test('refuses to grow past its limit', () => {
    const failures: Error[] = []
    const rows = rowWriter(20, (error) => failures.push(error))
    rows.describe([{ name: 'i', dataTypeID: 23 }])
    rows.row(['1'])
    for (let n = 0; n < 3; n++) rows.row(['1234567890'])
    expect(failures).toEqual([new SqlResultTooLarge(20)])
  })
})

describe('escapeJson', () => {
  test('writes UTF-8 as the content of a JSON string, wherever it is split', () => {
    const text = Array.from({ length: 0x180 }, (_, code) => String.fromCharCode(code))
      .concat('😀"\\')
      .join('')
    const bytes = Buffer.from(text)
    for (const length of [1, 2, 3, 7, bytes.length]) {
      const parts = Array.from({ length: Math.ceil(bytes.length / length) }, (_, n) =>
        escapeJson(bytes.subarray(n * length, (n + 1) * length)),
      )
      expect(joinText(parts)).toBe(JSON.stringify(text).slice(1, -1))
    }
  })

  test('returns the same bytes if nothing needs escaping', () => {
    const bytes = Buffer.from('äöü 😀')
    expect(escapeJson(bytes)).toBe(bytes)
  })
})
