import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import type { SupabaseClient } from '@supabase/supabase-js'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { baseUrl } from '../../support/api.ts'
import { newPage, startBrowser } from '../../support/browser.ts'
import { newDataApi, type TestDataApi } from '../../support/data-api.ts'
import { putFunction } from '../../support/functions.ts'
import { KEY_TAKEN, newBucket } from '../../support/storage.ts'

const SCHEMA = `
  create table notes (id int primary key, owner text default auth.jwt() ->> 'sub', title text unique);
  alter table notes enable row level security;
  create policy readable on notes for select to anon, authenticated using (true);
  create policy own on notes for insert to authenticated with check (owner = auth.jwt() ->> 'sub');
  create table tags (note_id int references notes, name text);
  create function shout(word text) returns text language sql immutable as 'select upper(word)';
  create function doze() returns text language sql as $$ select 'awake' from pg_sleep(2) $$;
  insert into notes values (1, 'nobody', 'first'), (2, 'nobody', 'second');
  insert into tags values (1, 'red'), (1, 'blue')`

/** A function that answers preflights, and calls the Data API itself. */
const CALLING_FUNCTION = `
  const headers = {
    'access-control-allow-origin': '*',
    'access-control-allow-headers': 'authorization, x-client-info, apikey, content-type',
  }
  Deno.serve(async (request) => {
    if (request.method === 'OPTIONS') return new Response(null, { headers })
    const { word } = await request.json()
    const address = Deno.env.get('SUPABASE_URL') + '/rest/v1/rpc/shout?word=' + word
    const answer = await fetch(address, { headers: { apikey: Deno.env.get('SUPABASE_ANON_KEY') } })
    return Response.json(await answer.json(), { headers })
  })`

const LIBRARY = join(dirname(createRequire(import.meta.url).resolve('@supabase/supabase-js')), 'umd/supabase.js')
const FILES: Readonly<Record<string, [type: string, text: string | Buffer]>> = {
  '/': ['text/html', '<!doctype html><title>App</title><script src="/supabase.js"></script>'],
  '/supabase.js': ['text/javascript', readFileSync(LIBRARY)],
}

/** Serves the page of an application: an origin of its own, so that the browser checks each request to the API. */
const app = createServer(({ url = '' }, response) => {
  const [type, text] = FILES[url] ?? ['text/plain', '']
  response.writeHead(FILES[url] ? 200 : 404, { 'content-type': type }).end(text)
})

let api: TestDataApi
let browser: Browser
let page: Page
beforeAll(async () => {
  ;[api, browser] = await Promise.all([newDataApi(SCHEMA), startBrowser()])
  await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve))
  page = await newPage(browser)
  await page.goto(`http://127.0.0.1:${(app.address() as AddressInfo).port}/`)
})
afterAll(async () => {
  await browser?.close()
  app.close()
})

interface As {
  key?: string
  /** The token of a user, beside the key. */
  token?: string
  argument?: string
}

/** Runs a function in the page, where it sees nothing of this file: it gets a client and the argument. */
function inPage<Result>(
  run: (client: SupabaseClient, argument: string) => PromiseLike<Result>,
  { key = api.keys.service, token, argument = '' }: As = {},
) {
  const json = JSON.stringify
  const options = token ? `{ accessToken: async () => ${json(token)} }` : '{ auth: { persistSession: false } }'
  const client = `supabase.createClient(${json(`${baseUrl}/p/${api.ref}`)}, ${json(key)}, ${options})`
  return page.evaluate(`(${run})(${client}, ${json(argument)})`) as Promise<Result>
}

describe('supabase-js in a page of another origin', () => {
  it('is held to the rules of CORS', async () => {
    await expect(page.evaluate(`fetch(${JSON.stringify(`${inject('hooksUrl')}/logs?part=none`)})`)).rejects.toThrow(
      'Failed to fetch',
    )
  })

  it('reads as anon: rows, embedded rows, counts, CSV, functions', async () => {
    const { anon } = api.keys
    const read = await inPage(
      async (client) => [
        await client.from('notes').select('id, tags(name)').order('id'),
        await client.from('notes').select('id', { count: 'exact' }).limit(1),
        await client.from('notes').select('*', { count: 'exact', head: true }),
        await client.from('notes').select('id, title').order('id').csv(),
        await client.rpc('shout', { word: 'hi' }),
        await client.rpc('shout', { word: 'hi' }, { get: true }),
      ],
      { key: anon },
    )
    expect(read).toMatchObject([
      {
        status: 200,
        data: [
          { id: 1, tags: [{ name: 'red' }, { name: 'blue' }] },
          { id: 2, tags: [] },
        ],
      },
      { status: 206, data: [{ id: 1 }], count: 2 },
      { status: 200, data: null, count: 2 },
      { status: 200, data: 'id,title\n1,first\n2,second' },
      { status: 200, data: 'HI' },
      { status: 200, data: 'HI' },
    ])
  })

  it('writes as the user of a token, under the policies', async () => {
    const user = randomUUID()
    const written = await inPage(
      async (client) => [
        await client.from('notes').insert({ id: 10, title: 'mine' }).select('owner').single(),
        await client.from('notes').insert({ id: 11, owner: 'nobody', title: 'theirs' }),
      ],
      { key: api.keys.anon, token: await api.tokenOf(user) },
    )
    expect(written).toMatchObject([
      { status: 201, data: { owner: user } },
      { status: 403, error: { code: '42501' } },
    ])
  })

  it('writes as service_role: upsert, update, delete', async () => {
    const written = await inPage(async (client) => [
      await client.from('notes').upsert({ id: 20, title: 'new' }).select('title'),
      await client.from('notes').upsert({ id: 20, title: 'newer' }, { onConflict: 'id' }).select('title'),
      await client.from('notes').update({ title: 'newest' }).eq('id', 20).select('title'),
      await client.from('notes').delete({ count: 'exact' }).eq('id', 20),
    ])
    expect(written).toMatchObject([
      { status: 201, data: [{ title: 'new' }] },
      { status: 200, data: [{ title: 'newer' }] },
      { status: 200, data: [{ title: 'newest' }] },
      { status: 204, count: 1 },
    ])
  })

  it('reads the code of an error', async () => {
    const refused = await inPage(async (client) => [
      await client.from('notes').insert({ id: 30, title: 'first' }),
      await client.from('nothing').select(),
      await client.from('notes').select().single(),
    ])
    expect(refused).toMatchObject([
      { status: 409, error: { code: '23505' } },
      { status: 404, error: { code: 'PGRST205' } },
      { status: 406, error: { code: 'PGRST116' } },
    ])
    const anonymous = await inPage(async (client) => client.from('notes').select(), {
      key: 'sb_publishable_none',
    })
    expect(anonymous).toMatchObject({ status: 401, error: { message: 'Invalid API key' } })
  })

  it('aborts a call', async () => {
    const { data, error } = await inPage(async (client) => {
      const controller = new AbortController()
      const call = client.rpc('doze').abortSignal(controller.signal).then()
      controller.abort()
      return call
    })
    expect([data, error?.message]).toEqual([null, expect.stringContaining('AbortError')])
  })

  it('uploads and downloads an object, and reads why it may not', async () => {
    const stored = await inPage(
      async (client, name) => {
        const files = client.storage.from(name)
        const upload = () => files.upload('hello.txt', new Blob(['Hello'], { type: 'text/plain' }))
        const [first, second] = [await upload(), await upload()]
        const { data } = await files.download('hello.txt')
        const signed = await files.createSignedUrl('hello.txt', 60)
        const text = await (await fetch(signed.data?.signedUrl ?? '')).text()
        return [first.data?.path, second.error?.message, await data?.text(), text]
      },
      { argument: await newBucket(api.project) },
    )
    expect(stored).toEqual(['hello.txt', KEY_TAKEN.message, 'Hello', 'Hello'])
  })

  it('reads why a function could not be called', async () => {
    const failed = await inPage(async (client) => {
      const { error } = await client.functions.invoke('missing', { body: {} })
      return { name: error.name, status: error.context.status }
    })
    expect(failed).toEqual({ name: 'FunctionsHttpError', status: 404 })
  })

  it('invokes a function, which calls the Data API', async () => {
    await putFunction(api.ref, CALLING_FUNCTION, { slug: 'shout' })
    const invoked = await inPage(async (client) => client.functions.invoke('shout', { body: { word: 'hi' } }))
    expect(invoked).toMatchObject({ data: 'HI', error: null })
  })
})
