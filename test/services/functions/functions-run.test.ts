import { once } from 'node:events'
import { createServer } from 'node:http'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { baseUrl, newOrganization, tick } from '../../support/api.ts'
import { deploy } from '../../support/deploys.ts'
import { invocationsOf, putFunction, putSecret } from '../../support/functions.ts'
import { listenOnFreePort } from '../../support/listen.ts'
import { WAIT } from '../../support/machine.ts'
import { PASSWORD } from '../../support/projects.ts'
import { exchange, newStorage, type TestStorage } from '../../support/storage.ts'

let project: TestStorage
const urlOf = (slug: string, rest = '') => new URL(`/p/${project.ref}/functions/v1/${slug}${rest}`, baseUrl)

/** Deploys a program of this body and calls it. */
async function answerOf(program: string, { rest = '', ...init }: RequestInit & { rest?: string } = {}) {
  const { slug } = await putFunction(project.ref, program)
  return fetch(urlOf(slug, rest), init)
}

const jsonOf = async (program: string, init?: RequestInit) => (await answerOf(program, init)).json()
const serve = (body: string) => `Deno.serve(async (request, info) => { ${body} })`
const lazyProgram = (body: string, exported = '') =>
  `export const start = async () => { ${body}; return { ${exported} } }`

beforeAll(async () => {
  project = await newStorage(await newOrganization())
})

describe('a function', () => {
  it.each([
    ['Deno.serve(handler)', `Deno.serve(() => new Response('here'))`],
    ['Deno.serve(options, handler)', `Deno.serve({ port: 8000, onListen() {} }, () => new Response('here'))`],
    ['Deno.serve({ handler })', `Deno.serve({ handler: () => new Response('here') })`],
    ['export default { fetch }', `export default { fetch: () => new Response('here') }`],
    ['lazily, Deno.serve', lazyProgram(`Deno.serve(() => new Response('here'))`)],
    ['lazily, export default', lazyProgram('', `default: { fetch: () => new Response('here') }`)],
    ['a program that waits for its server', lazyProgram(`await Deno.serve(() => new Response('here')).finished`)],
  ])('answers: %s', async (_, program) => {
    const response = await answerOf(program)
    expect([response.status, await response.text()]).toEqual([200, 'here'])
  })

  it('receives the request with its slug at the start of the path', async () => {
    const { slug } = await putFunction(
      project.ref,
      serve(`const { pathname, search } = new URL(request.url)
        return Response.json([request.method, pathname, search, request.headers.get('x-own'), await request.text()])`),
    )
    const init = { method: 'PATCH', body: 'body', headers: { 'x-own': 'yes', 'x-test-clock': String(Date.now()) } }
    const response = await fetch(urlOf(slug, '/a%20b/c?d=e'), init)
    expect(await response.json()).toEqual(['PATCH', `/${slug}/a%20b/c`, '?d=e', 'yes', 'body'])
  })

  it('answers a GET and a HEAD with a body, which it does not receive', async () => {
    const { slug } = await putFunction(project.ref, serve(`return new Response('body: ' + (await request.text()))`))
    for (const [method, answer] of [
      ['GET', 'body: '],
      ['HEAD', ''],
    ] as const) {
      const headers = { 'content-type': 'application/json', 'content-length': '2' }
      const { status, body } = await exchange(String(urlOf(slug)), { method, headers, body: '{}' })
      expect([method, status, body]).toEqual([method, 200, answer])
    }
  })

  it('receives and sends 30 MB', async () => {
    const body = Buffer.alloc(30_000_000, 'x')
    const response = await answerOf(
      serve(`return new Response(request.body, { headers: { 'x-length': request.headers.get('content-length') } })`),
      {
        method: 'POST',
        body,
      },
    )
    expect(response.headers.get('x-length')).toBe('30000000')
    expect((await response.arrayBuffer()).byteLength).toBe(30_000_000)
  })

  it.each(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])('is called with %s', async (method) => {
    const response = await answerOf(
      serve(`return new Response(request.method === 'HEAD' ? null : 'x', { headers: { 'x-method': request.method } })`),
      { method },
    )
    expect([response.status, response.headers.get('x-method')]).toEqual([200, method])
  })

  it('returns its own status, headers, cookies and redirects', async () => {
    const response = await answerOf(
      serve(`const headers = new Headers({ location: 'https://example.com/' })
        headers.append('set-cookie', 'a=1'); headers.append('set-cookie', 'b=2')
        return new Response(null, { status: 307, headers })`),
      { redirect: 'manual' },
    )
    expect(response.status).toBe(307)
    expect(response.headers.get('location')).toBe('https://example.com/')
    // The cookie is only for its project: others answer at the same host.
    const ownPath = expect.stringMatching(/^(a=1|b=2); Path=\/p\/[a-z]{20}\/$/)
    expect(response.headers.getSetCookie()).toEqual([ownPath, ownPath])
  })

  it('reads forms', async () => {
    const form = new FormData()
    form.set('name', 'value')
    form.set('file', new File(['text'], 'a.txt'))
    const program = serve(
      `const form = await request.formData(); return Response.json([form.get('name'), await form.get('file').text()])`,
    )
    expect(await jsonOf(program, { method: 'POST', body: form })).toEqual(['value', 'text'])
  })

  it('may do at its top level what Deno allows there', async () => {
    const program = lazyProgram(`const id = crypto.randomUUID()
      await new Promise((resolve) => setTimeout(resolve, 1))
      const own = await (await fetch(Deno.env.get('SUPABASE_URL') + '/storage/v1/status')).status
      Deno.serve(() => Response.json([id.length, own]))`)
    expect(await jsonOf(program)).toEqual([36, 200])
  })

  it("gets the caller's address from the front server", async () => {
    const program = serve(`return Response.json(info.remoteAddr)`)
    expect(await jsonOf(program, { headers: { 'x-test-address': '192.0.2.7' } })).toMatchObject({
      transport: 'tcp',
      hostname: '192.0.2.7',
    })
  })

  it('may use a Node server instead', async () => {
    const program = `import { createServer } from 'node:http'
      createServer((request, response) => {
        request.setEncoding('utf8')
        let body = ''
        request.on('data', (text) => { body += text })
        request.on('end', () => {
          response.writeHead(201, { 'x-own': 'yes', 'content-type': 'application/json' })
          response.end(JSON.stringify([request.method, request.url.replace(/f-[^/]*/, ''), body]))
        })
      }).listen(3000)`
    const { slug } = await putFunction(project.ref, program)
    for (const body of ['one', 'two']) {
      const response = await fetch(urlOf(slug, '/below?a=1'), { method: 'POST', body })
      expect([response.status, response.headers.get('x-own')]).toEqual([201, 'yes'])
      expect(await response.json()).toEqual(['POST', '//below?a=1', body])
    }
  })

  it('finds the address of its caller where programs look for it, whatever the caller sent', async () => {
    const program = serve(`return Response.json([...request.headers].filter(([name]) => name === 'x-forwarded-for'))`)
    const headers = { 'x-test-address': '192.0.2.7', 'x-forwarded-for': '6.6.6.6' }
    expect(await jsonOf(program, { headers })).toEqual([['x-forwarded-for', '192.0.2.7']])
  })

  it('can print its request, without values of the host', async () => {
    const { slug, id } = await putFunction(
      project.ref,
      serve(`console.log(request); return Response.json([request.cf, request.method, await request.text()])`),
    )
    const response = await fetch(urlOf(slug), { method: 'POST', body: 'text' })
    expect(await response.json()).toEqual([{}, 'POST', 'text'])
    await vi.waitFor(async () => {
      const [invocation] = await invocationsOf(id)
      expect(invocation?.console).toMatchObject([{ level: 'log', message: expect.stringMatching(/^Request \{/) }])
    }, WAIT)
  })

  it('requests permissions as in Deno, and writes to the console by its streams', async () => {
    const { slug, id } = await putFunction(
      project.ref,
      serve(`Deno.stdout.writeSync(new TextEncoder().encode('to stdout\\n'))
        await Deno.stderr.write(new TextEncoder().encode('to stderr'))
        const command = (() => { try { new Deno.Command('ls') } catch (error) { return error.name } })()
        return Response.json([Deno.permissions.querySync({ name: 'env' }).state, command])`),
    )
    expect(await (await fetch(urlOf(slug))).json()).toEqual(['granted', 'NotSupported'])
    await vi.waitFor(async () => {
      const [invocation] = await invocationsOf(id)
      expect(invocation?.console).toMatchObject([
        { level: 'log', message: 'to stdout' },
        { level: 'error', message: 'to stderr' },
      ])
    }, WAIT)
  })

  it('answers with onError if a handler fails', async () => {
    const program = `Deno.serve({ onError: (error) => new Response('caught ' + error.message, { status: 418 }) }, () => { throw new Error('it') })`
    const response = await answerOf(program)
    expect([response.status, await response.text()]).toEqual([418, 'caught it'])
  })

  const streaming = (source: string) =>
    serve(`return new Response(new ReadableStream({ ${source} }), { headers: { 'x-own': 'yes' } })`)

  it.each([
    ['as it starts', `start(begun) { begun.error(new Error('no stream')) }`],
    ['as it is read first', `async pull() { await 0; throw new Error('no stream') }`],
    ['with what is no bytes', `start(begun) { begun.enqueue({ text: 'no stream' }) }`],
  ])('fails with a stream that fails %s, and logs why', async (_, source) => {
    const { slug, id } = await putFunction(project.ref, streaming(source))
    const response = await fetch(urlOf(slug))
    expect([response.status, response.headers.get('sb-error-code')]).toEqual([500, 'EDGE_FUNCTION_ERROR'])
    await vi.waitFor(async () => {
      const rows = await invocationsOf(id)
      expect(rows).toMatchObject([
        { status: 500, console: [{ level: 'error', message: expect.stringMatching(/^Uncaught .*stream/) }] },
      ])
    }, WAIT)
  })

  it('fails if it passes on a response with a status that HTTP does not have, and logs why', async () => {
    const upstream = createServer((_, response) => response.writeHead(999).end())
    const port = await listenOnFreePort(upstream)
    const { slug, id } = await putFunction(project.ref, serve(`return fetch('http://127.0.0.1:${port}')`))
    const response = await fetch(urlOf(slug))
    expect([response.status, response.headers.get('sb-error-code')]).toEqual([500, 'EDGE_FUNCTION_ERROR'])
    await vi.waitFor(async () => {
      const rows = await invocationsOf(id)
      expect(rows).toMatchObject([
        { status: 500, console: [{ level: 'error', message: expect.stringMatching(/^Uncaught RangeError: .*999/) }] },
      ])
    }, WAIT)
    upstream.close()
  })

  it('is interrupted by a stream that fails later, and logs why', async () => {
    const { slug, id } = await putFunction(
      project.ref,
      streaming(`async pull(begun) {
        if (this.given) {
          await new Promise((resolve) => setTimeout(resolve, 50))
          throw new Error('no more')
        }
        this.given = true
        begun.enqueue(new TextEncoder().encode('first'))
      }`),
    )
    const response = await fetch(urlOf(slug))
    expect([response.status, response.headers.get('x-own')]).toEqual([200, 'yes'])
    await expect(response.text()).rejects.toThrow()
    await vi.waitFor(async () => {
      const rows = await invocationsOf(id)
      expect(rows).toMatchObject([
        { status: 200, console: [{ level: 'error', message: expect.stringMatching(/^Uncaught Error: no more/) }] },
      ])
    }, WAIT)
  })

  it('streams slow data as it comes, to its end', async () => {
    const response = await answerOf(
      streaming(`async pull(begun) {
        await new Promise((resolve) => setTimeout(resolve, 20))
        this.given = (this.given ?? 0) + 1
        if (this.given > 3) begun.close()
        else begun.enqueue(new TextEncoder().encode('more '))
      }`),
    )
    expect([response.status, await response.text()]).toEqual([200, 'more more more '])
  })

  it('continues after its answer, with EdgeRuntime.waitUntil', async () => {
    const { slug, id } = await putFunction(
      project.ref,
      serve(`EdgeRuntime.waitUntil(new Promise((resolve) => setTimeout(resolve, 1000)).then(() => console.log('later')))
        return new Response('now')`),
    )
    expect(await (await fetch(urlOf(slug))).text()).toBe('now')
    await vi.waitFor(async () => expect(JSON.stringify(await invocationsOf(id))).toContain('later'), WAIT)
  })

  it('logs what fails after its answer', async () => {
    const { slug, id } = await putFunction(
      project.ref,
      serve(`EdgeRuntime.waitUntil((async () => { await 0; throw new Error('in background') })())
        return new Response('now')`),
    )
    expect(await (await fetch(urlOf(slug))).text()).toBe('now')
    await vi.waitFor(async () => expect(JSON.stringify(await invocationsOf(id))).toContain('in background'), WAIT)
  })

  it('gets a clear error for a failed fetch', async () => {
    const program = serve(`const reason = await fetch('http://127.0.0.1:1/a?secret=1').catch((error) => error)
      return Response.json([reason instanceof TypeError, reason.message])`)
    expect(await jsonOf(program)).toEqual([
      true,
      expect.stringMatching(/^error sending request for url \(http:\/\/127\.0\.0\.1:1\/a\): /),
    ])
  })

  it('communicates over a WebSocket', async () => {
    const { slug } = await putFunction(
      project.ref,
      serve(`const { socket, response } = Deno.upgradeWebSocket(request)
        socket.onopen = () => socket.send('open')
        socket.onmessage = ({ data }) => { socket.send('you said ' + data); socket.close(1000, 'enough') }
        return response`),
    )
    const socket = new WebSocket(String(urlOf(slug)).replace('http', 'ws'))
    const heard: string[] = []
    socket.addEventListener('message', ({ data }) => {
      if (heard.push(String(data)) === 1) socket.send('hello')
    })
    const [closed] = (await once(socket, 'close')) as [CloseEvent]
    expect(heard).toEqual(['open', 'you said hello'])
    expect([closed.code, closed.reason]).toEqual([1000, 'enough'])
  })
})

describe('a WebSocket with protocols', () => {
  it('has the protocol that the function chooses', async () => {
    const { slug } = await putFunction(
      project.ref,
      serve(`const { socket, response } = Deno.upgradeWebSocket(request, { protocol: 'two' })
        socket.onmessage = () => socket.close(1000)
        return response`),
    )
    const socket = new WebSocket(String(urlOf(slug)).replace('http', 'ws'), ['one', 'two'])
    await once(socket, 'open')
    expect(socket.protocol).toBe('two')
    socket.send('enough')
    await once(socket, 'close')
  })
})

describe('a program finds', () => {
  it('its secrets and the variables that clients expect, and nothing of the host', async () => {
    await putSecret(project.ref, 'MY_SECRET', 'a value')
    const found = await jsonOf(serve('return Response.json([Deno.env.toObject(), process.env.MY_SECRET])'))
    const [variables, fromNode] = found as [Record<string, string>, string]
    expect(fromNode).toBe('a value')
    expect(variables).toEqual({
      MY_SECRET: 'a value',
      SUPABASE_URL: `https://${project.ref}.projects.example.com`,
      SUPABASE_ANON_KEY: project.keys.anon,
      SUPABASE_PUBLISHABLE_KEYS: JSON.stringify({ default: project.keys.publishable }),
      SUPABASE_SECRET_KEYS: JSON.stringify({ default: project.keys.secret }),
      SUPABASE_JWKS: '{"keys":[]}',
      SUPABASE_SERVICE_ROLE_KEY: project.keys.service,
      SUPABASE_DB_URL: `postgresql://postgres.${project.ref}:${encodeURIComponent(PASSWORD)}@${inject('databaseHost')}:${inject('databasePort')}/postgres`,
      SB_REGION: 'us-east-1',
      SB_EXECUTION_ID: expect.stringMatching(/^[0-9a-f-]{36}$/),
      DENO_DEPLOYMENT_ID: expect.stringMatching(new RegExp(`^${project.ref}_[0-9a-f-]{36}_1$`)),
    })
  })

  it('an environment that it can change', async () => {
    const program = serve(`const { env } = Deno
      env.set('A', '1'); const had = env.get('A'); env.delete('A')
      return Response.json([had, env.get('A') ?? null, env.has('A'), env.get('constructor') ?? null])`)
    expect(await jsonOf(program)).toEqual(['1', null, false, null])
  })

  it('new secrets at the next request', async () => {
    await putSecret(project.ref, 'CHANGED', 'old')
    const { slug } = await putFunction(project.ref, serve(`return new Response(Deno.env.get('CHANGED'))`))
    expect(await (await fetch(urlOf(slug))).text()).toBe('old')
    await putSecret(project.ref, 'CHANGED', 'new')
    await vi.waitFor(async () => expect(await (await fetch(urlOf(slug))).text()).toBe('new'), WAIT)
  })

  it('its static files, by any form of their names', async () => {
    const files = {
      'functions/hello/page.html': Buffer.from('<p>page</p>').toString('base64'),
      'functions/_shared/logo.bin': 'AAEC',
    }
    const { slug } = await putFunction(
      project.ref,
      serve(`return Response.json([
        await Deno.readTextFile('./functions/hello/page.html'),
        Deno.readTextFileSync('page.html'),
        await Deno.readTextFile(new URL('page.html', 'file:///functions/hello/index.ts')),
        await Deno.readTextFile('./hello/page.html'),
        [...Deno.readFileSync('../_shared/logo.bin')],
        await Deno.readTextFile('missing.txt').catch((error) => [error.name, error instanceof Deno.errors.NotFound]),
      ])`),
      { files, entrypoint: 'functions/hello/index.ts' },
    )
    const page = '<p>page</p>'
    expect(await (await fetch(urlOf(slug))).json()).toEqual([page, page, page, page, [0, 1, 2], ['NotFound', true]])
  })

  it('a clear error for a missing feature', async () => {
    const names = ['open', 'memoryUsage', 'systemMemoryInfo']
    const program = serve(`return Response.json(await Promise.all(${JSON.stringify(names)}.map(async (name) => {
        try { await Deno[name]('x') } catch (error) { return [error.name, error.message] }
      })))`)
    expect(await jsonOf(program)).toEqual(names.map((name) => ['NotSupported', `Deno.${name} is not available here`]))
  })

  it('a machine without known details, which it cannot end', async () => {
    const program =
      serve(`Deno.addSignalListener('SIGTERM', () => {}); Deno.removeSignalListener('SIGTERM', () => {}); Deno.exit(1); Deno.kill(1)
      const size = (() => { try { return Deno.consoleSize() } catch (error) { return error.message } })()
      return Response.json([Deno.hostname(), Deno.uid(), Deno.gid(), Deno.loadavg(), Deno.networkInterfaces(), Deno.execPath(), size,
        Deno.osRelease(), Deno.osUptime() < 60, typeof Deno.osUptime()])`)
    expect(await jsonOf(program)).toEqual([
      ...['localhost', null, null, [0, 0, 0], [], '', 'Inappropriate ioctl for device (os error 25)'],
      ...['', true, 'number'],
    ])
  })

  it('a clock that counts from its start', async () => {
    const program = serve(`const [at, { timeOrigin }] = [performance.now(), performance]
      await new Promise((resolve) => setTimeout(resolve, 20))
      return Response.json([at, performance.now() - at, timeOrigin + performance.now() - Date.now()])`)
    const [at, passed, off] = (await jsonOf(program)) as [number, number, number]
    expect(at).toBeGreaterThanOrEqual(0)
    expect(at).toBeLessThan(60_000)
    expect(passed).toBeGreaterThanOrEqual(15)
    expect(Math.abs(off)).toBeLessThan(5)
  })

  it("the web's functions to read files", async () => {
    const program = serve(`const blob = new Blob(['grün'], { type: 'text/plain' })
      const read = (how, ...given) => new Promise((resolve, reject) => {
        const [reader, told] = [new FileReader(), []]
        for (const kind of ['loadstart', 'progress', 'load', 'abort', 'error']) reader.addEventListener(kind, ({ type }) => told.push(type))
        reader.onloadend = (event) => resolve([reader.result, told.join(), event instanceof ProgressEvent && event.loaded, reader.readyState])
        reader[how](blob, ...given)
        if (how === 'readAsBinaryString') reader.abort()
      })
      const [[bytes]] = [await read('readAsArrayBuffer')]
      return Response.json([window === globalThis, bytes.byteLength, await read('readAsText'), await read('readAsText', 'latin1'), await read('readAsDataURL'), await read('readAsBinaryString')])`)
    expect(await jsonOf(program)).toEqual([
      true,
      5,
      ['grün', 'loadstart,progress,load', 5, 2],
      ['grÃ¼n', 'loadstart,progress,load', 5, 2],
      ['data:text/plain;base64,Z3LDvG4=', 'loadstart,progress,load', 5, 2],
      [null, 'abort', 0, 2],
    ])
  })

  it('the other functions of Deno that programs use', async () => {
    const program = serve(`addEventListener('beforeunload', () => {})
      return Response.json([Deno.args, Deno.cwd(), Deno.build.os, typeof Deno.version.deno, Deno.inspect({ a: 1 }), typeof Deno.unknown, typeof navigator.userAgent])`)
    expect(await jsonOf(program)).toEqual([[], '/', 'linux', 'string', '{ a: 1 }', 'undefined', 'string'])
  })
})

describe('a deployed program', () => {
  it('may wait and generate random values before it serves', async () => {
    const { ref, organization } = project
    const program = `const id: string = crypto.randomUUID()
      await new Promise((resolve) => setTimeout(resolve, 10))
      Deno.serve(() => new Response(id))`
    const slug = 'awaits'
    await deploy(organization.owner, ref, { slug, files: { 'index.ts': program }, metadata: { verify_jwt: false } })
    const response = await fetch(urlOf(slug))
    expect([response.status, await response.text()]).toEqual([200, expect.stringMatching(/^[0-9a-f-]{36}$/)])
  })
})

describe('a new version', () => {
  it('answers the next request after its deployment, and none after its removal', async () => {
    const { ref, organization } = project
    const put = (text: string) =>
      deploy(organization.owner, ref, {
        slug: 'deployed',
        files: { 'index.ts': `const text: string = '${text}'\nDeno.serve(() => new Response(text))` },
        metadata: { verify_jwt: false },
      })
    const answer = async () => (await fetch(urlOf('deployed'))).text()
    await put('first')
    expect([await answer(), await answer()]).toEqual(['first', 'first'])
    await put('second')
    expect(await answer()).toBe('second')
    await organization.owner.post(`/v1/projects/${ref}/secrets`, [{ name: 'CHANGES', value: 'x' }])
    expect(await answer()).toBe('second')
    expect((await organization.owner.delete(`/v1/projects/${ref}/functions/deployed`)).status).toBe(200)
    expect((await fetch(urlOf('deployed'))).status).toBe(404)
  })

  it('answers soon after, and the old one finishes its requests', async () => {
    const program = (version: string) =>
      serve(
        `await new Promise((resolve) => setTimeout(resolve, request.url.includes('slow') ? 2500 : 0)); return new Response('${version}')`,
      )
    const { slug } = await putFunction(project.ref, program('first'))
    expect(await (await fetch(urlOf(slug))).text()).toBe('first')
    const slow = fetch(urlOf(slug, '?slow'))
    await putFunction(project.ref, program('second'), { slug })
    await vi.waitFor(async () => expect(await (await fetch(urlOf(slug))).text()).toBe('second'), WAIT)
    expect(await (await slow).text()).toBe('first')
  })
})

describe('an idle program', () => {
  it('is stopped after 400 seconds, and starts again with its next call', async () => {
    const { slug } = await putFunction(project.ref, `let calls = 0\n${serve('return Response.json(++calls)')}`)
    const callAt = async (at: number) => (await fetch(urlOf(slug), { headers: { 'x-test-clock': String(at) } })).json()
    expect([await callAt(Date.now()), await callAt(Date.now() - 300_000)]).toEqual([1, 2])
    // Ticks may come late on a busy machine, so the first is well before the limit.
    await tick()
    expect(await callAt(Date.now() - 401_000)).toBe(3)
    await tick()
    expect(await callAt(Date.now())).toBe(1)
  })
})
