import { describe, expect, it } from 'vitest'
import { parseForm, writeForm } from '../../../src/services/data-api/request/form-encoding.ts'

const QUERIES = [
  '',
  '&',
  'a',
  '=',
  'a=b=c',
  'a=1&&b',
  'a+b=c+d',
  'a=%C3%A9',
  '%2Ba=%26',
  'a=%ff',
  'a=%',
  'a=%zz&b=%41',
  'é=ü',
]

describe('a query', () => {
  it.each(QUERIES)('is parsed as URLSearchParams parses it: %j', (query) => {
    expect(parseForm(query)).toEqual([...new URLSearchParams(query)])
  })

  it('is written as URLSearchParams writes it', () => {
    const pairs = ['a b', "!'()*~-._", 'é&=+%', '\n'].map((text) => [text, text] as const)
    expect(writeForm(pairs)).toBe(new URLSearchParams(pairs.map(([name, value]) => [name, value])).toString())
  })
})
