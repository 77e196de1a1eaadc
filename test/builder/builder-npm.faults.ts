import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Builder, startBuilder } from './client.ts'
import { defaultOf } from './run.ts'

let builder: Builder
beforeAll(async () => {
  builder = await startBuilder()
})
afterAll(() => builder.stop())

describe('what functions import from npm', () => {
  it.each([
    ['zod', `import { z } from 'npm:zod@3'; export default z.string().parse('a')`, 'a'],
    [
      'hono',
      `import { Hono } from 'npm:hono@4'; const app = new Hono(); app.get('/', (c) => c.text('hi')); export default async () => (await app.request('/')).text()`,
      'hi',
    ],
    [
      'supabase-js',
      `import { createClient } from 'npm:@supabase/supabase-js@2'; export default () => typeof createClient('http://a.b', 'k').from('x').select`,
      'function',
    ],
    [
      'the S3 client',
      `import { parseXML } from 'npm:@aws-sdk/xml-builder@3'; import { S3Client } from 'npm:@aws-sdk/client-s3@3'
       export default () => [typeof new S3Client({ region: 'auto' }).send, parseXML('<A><B>b</B></A>')]`,
      ['function', { A: { B: 'b' } }],
    ],
  ])('%s', async (_name, code, value) => {
    expect(await defaultOf(await builder.build({ 'index.ts': code }))).toEqual(value)
  })
})
