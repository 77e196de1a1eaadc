import { beforeAll, describe, expect, it, vi } from 'vitest'
import { baseUrl, newOrganization, workerLogs } from '../../support/api.ts'
import { invocationsOf, putFunction, putSecret } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { newStorage, type TestStorage } from '../../support/storage.ts'

let victim: TestStorage
let attacker: TestStorage
const serve = (body: string) => `Deno.serve(async (request, info) => { ${body} })`

async function call({ ref }: TestStorage, slug: string, headers: Record<string, string> = {}) {
  const response = await fetch(new URL(`/p/${ref}/functions/v1/${slug}`, baseUrl), { headers })
  return { status: response.status, headers: response.headers, text: await response.text() }
}

/** Returns what an attacker's program finds. */
async function runAttacker(body: string, top = '') {
  const { slug } = await putFunction(attacker.ref, `${top}\n${serve(body)}`)
  const { status, text } = await call(attacker, slug)
  return { status, text }
}

beforeAll(async () => {
  victim = await newStorage(await newOrganization())
  attacker = await newStorage(await newOrganization())
  await putSecret(victim.ref, 'VICTIM_SECRET', 'victim-secret-value')
})

describe('a function finds nothing of another', () => {
  it('in globals, prototypes and built-in objects', async () => {
    const poison = `globalThis.leak = 'poison'; Object.prototype.leak = 'poison'; Array.prototype.map = () => 'poison'
      JSON.stringify = () => 'poison'; globalThis.fetch = () => 'poison'; Error.prepareStackTrace = () => 'poison'
      Response.prototype.text = () => 'poison'; Headers.prototype.get = () => 'poison'; crypto.randomUUID = () => 'poison'
      AsyncLocalStorage.prototype.run = () => 'poison'; process.env.LEAK = 'poison'`
    const bad = await putFunction(
      attacker.ref,
      `import { AsyncLocalStorage } from 'node:async_hooks'\n${serve(`${poison}; return new Response('done')`)}`,
    )
    await call(attacker, bad.slug)
    const good = await putFunction(
      victim.ref,
      serve(
        `return Response.json([typeof leak, typeof {}.leak, [1].map(String), process.env.LEAK ?? null, String(new Error('x').stack).includes('poison')])`,
      ),
    )
    expect((await call(victim, good.slug)).text).toBe('["undefined","undefined",["1"],null,false]')
    // The host is not harmed either.
    expect((await victim.organization.owner.get(`/v1/projects/${victim.ref}`)).status).toBe(200)
  })

  it('in variables: they have its own project, and nothing of the host', async () => {
    const { text } = await runAttacker(`const { env } = await import('cloudflare:workers')
      return Response.json({ process: process.env, env: Object.keys(env), all: JSON.stringify(env) })`)
    expect(text).not.toContain('victim-secret-value')
    expect(text).not.toMatch(/ENCRYPTION_KEY|DATABASE_URL|S3_SECRET|LOADER|BUILDER|RATE_LIMITERS|PROJECT_TASKS/)
  })

  it('in variables: only the secret has its name', async () => {
    const other = await newStorage(attacker.organization)
    await putSecret(other.ref, 'CONSOLE', 'mine')
    const { slug, id } = await putFunction(
      other.ref,
      serve(`console.log('seen'); return new Response(Deno.env.get('CONSOLE'))`),
    )
    expect((await call(other, slug)).text).toBe('mine')
    await vi.waitFor(async () => expect(JSON.stringify(await invocationsOf(id))).toContain('seen'), WAIT)
  })

  it('in what the runtime gives its handlers', async () => {
    const { text } = await runAttacker(`const workers = await import('cloudflare:workers')
      return Response.json([Object.keys(workers.exports), request.cf, request.fetcher, Object.keys(info)])`)
    expect(JSON.parse(text)).toEqual([['default'], {}, null, ['remoteAddr', 'completed']])
  })

  it('among its modules', async () => {
    const { id, deploymentId } = await putFunction(victim.ref, serve(`return new Response('victim code')`))
    const names = [
      id,
      deploymentId,
      `../${deploymentId}/function.js`,
      `/projects/${victim.ref}/functions/${deploymentId}/image`,
      'index.js',
    ]
    const { text } = await runAttacker(`const found = []
      for (const name of ${JSON.stringify(names)}) await import(name).then(() => found.push(name), () => {})
      return Response.json(found)`)
    expect(text).toBe('[]')
  })

  it('in a cache', async () => {
    const { text } = await runAttacker(
      `return Response.json([typeof caches, await (await import('cloudflare:workers')).cache?.match?.('http://a/') ?? null])`,
    )
    expect(JSON.parse(text)[0]).toBe('undefined')
  })

  it('on disk', async () => {
    const { text } = await runAttacker(`const fs = await import('node:fs')
      const found = []
      for (const path of ['/etc/passwd', '/proc/self/environ', '/work', '/bundle', '/tmp']) try { found.push([path, fs.readdirSync(path)]) } catch { try { fs.readFileSync(path); found.push(path) } catch {} }
      return Response.json(found)`)
    expect(text).not.toContain('passwd')
    expect(text).not.toContain('environ')
    expect(text).not.toContain('"/work"')
  })

  it('by running code that it creates', async () => {
    const { text } = await runAttacker(
      `try { return new Response(String(new Function('return 1')())) } catch (error) { return new Response(error.name) }`,
    )
    expect(text).toBe('EvalError')
  })
})

describe('a function cannot reach the host', () => {
  it('through its console', async () => {
    const other = await putFunction(victim.ref, serve(`console.log('own'); return new Response('x')`))
    await call(victim, other.slug)
    await vi.waitFor(async () => expect(await invocationsOf(other.id)).toHaveLength(1), WAIT)
    const [row] = await invocationsOf(other.id)
    const { status } = await runAttacker(`const { env } = await import('cloudflare:workers')
      await env['=console'].write('${row?.id}', [{ level: 'log', message: 'forged' }])
      for (const lines of [null, 1, 'x', [null], [{}], [{ message: 5 }], [{ message: '\\0\\ud800', level: {}, at: 'never' }]]) await env['=console'].write('${row?.id}', lines)
      await env['=console'].write({}, [])
      const more = []
      for (const name of ['env', 'ctx', 'fetch', 'print', 'constructor']) await Promise.resolve().then(() => env['=console'][name]()).then(() => more.push(name), () => {})
      return Response.json(more)`)
    expect(status).toBe(200)
    const late = await putFunction(victim.ref, serve(`console.log('after'); return new Response('x')`))
    await call(victim, late.slug)
    await vi.waitFor(async () => expect(JSON.stringify(await invocationsOf(late.id))).toContain('after'), WAIT)
    expect((await invocationsOf(other.id))[0]?.console.map(({ message }) => message)).toEqual(['own'])
  })

  it('by its log lines: the log of the host has none of them', async () => {
    const { status } = await runAttacker(`
      const nodeConsole = await import('node:console')
      console.log('{"level":"error","event":"forged_one"}'); nodeConsole.log('forged_two'); nodeConsole.default.error('forged_three')
      process.stdout?.write?.('forged_four'); process.stderr?.write?.('forged_five'); process.emitWarning?.('forged_six')
      console.table(['forged_seven']); console.count('forged_eight'); console.timeLog('forged_nine')
      Promise.reject(new Error('forged_ten')); setTimeout(() => { throw new Error('forged_eleven') }, 1)
      await new Promise((resolve) => setTimeout(resolve, 20))
      return new Response('x')`)
    expect(status).toBe(200)
    expect(await workerLogs('forged_')).toEqual([])
  })

  it('with errors: callers see nothing of them', async () => {
    const { slug } = await putFunction(
      attacker.ref,
      serve(`throw Object.assign(new Error('secret detail'), { status: 200, remote: false })`),
    )
    const { status, text, headers } = await call(attacker, slug)
    expect([status, JSON.parse(text)]).toEqual([
      500,
      { code: 'WORKER_ERROR', message: 'Function exited due to an error (please check logs)' },
    ])
    expect(headers.get('sb-error-code')).toBe('EDGE_FUNCTION_ERROR')
  })

  it.each([
    ['null', 'throw null'],
    ['an object with a getter', `throw { get message() { throw new Error('inner') } }`],
    ['a proxy', 'throw new Proxy({}, { get() { throw 1 } })'],
    ['no response', `return 'text'`],
    ['nothing', 'return'],
    ['a used response', `const response = new Response('x'); await response.text(); return response`],
  ])('with what it throws or returns: %s', async (_, body) => {
    const { status, text } = await runAttacker(body)
    expect([status, JSON.parse(text).code]).toEqual([500, 'WORKER_ERROR'])
  })

  it.each([
    ['a syntax error', 'const = 1'],
    ['a module that is not there', `import './missing.js'`],
    ['an error at its start', `throw new Error('at start')`],
    ['an error at its start, lazily', `export const start = async () => { throw new Error('at start') }`],
    ['nothing that serves', 'export const x = 1'],
  ])('with a program that does not start: %s', async (_, program) => {
    const { slug, id } = await putFunction(attacker.ref, program)
    const { status, text } = await call(attacker, slug)
    expect([status, JSON.parse(text)]).toEqual([
      503,
      { code: 'BOOT_ERROR', message: 'Function failed to start (please check logs)' },
    ])
    await vi.waitFor(
      async () => expect(JSON.stringify(await invocationsOf(id))).toContain('Failed to start Worker'),
      WAIT,
    )
  })

  it('as a page of its address that all projects share', async () => {
    const { slug } = await putFunction(
      attacker.ref,
      serve(
        `return new Response('<script>1</script>', { headers: { 'content-type': 'text/html', 'service-worker-allowed': '/', 'clear-site-data': '*' } })`,
      ),
    )
    const { headers } = await call(attacker, slug)
    expect(headers.get('content-type')).toBe('text/plain; charset=utf-8')
    expect(headers.get('content-security-policy')).toContain('sandbox')
    expect([headers.get('service-worker-allowed'), headers.get('clear-site-data')]).toEqual([null, null])
  })

  it('as something that browsers would treat as a page', async () => {
    const { slug } = await putFunction(
      attacker.ref,
      serve(`return new Response(new Blob(['<script>1</script>']).stream())`),
    )
    const { headers } = await call(attacker, slug)
    expect(headers.get('x-content-type-options')).toBe('nosniff')
  })

  it.each(['*/*', 'application/unknown', 'text/xsl', 'application/json'])(
    'as a document of the type %s',
    async (type) => {
      const { slug } = await putFunction(
        attacker.ref,
        serve(`return new Response('<script>1</script>', { headers: { 'content-type': '${type}' } })`),
      )
      const { headers } = await call(attacker, slug)
      expect(headers.get('content-security-policy')).toBe("default-src 'none'; sandbox")
      expect(headers.get('x-content-type-options')).toBe('nosniff')
    },
  )

  it('with data that browsers store for the whole origin', async () => {
    const { slug } = await putFunction(
      attacker.ref,
      serve(`const headers = new Headers({ nel: '{}', 'report-to': '{}', 'reporting-endpoints': 'a="https://a"', 'strict-transport-security': 'max-age=1' })
        for (const cookie of ['a=b; Path=/; Domain=example.com; HttpOnly', 'c=d; Expires=Wed, 21 Oct 2026 07:28:00 GMT']) headers.append('set-cookie', cookie)
        return new Response('x', { headers })`),
    )
    const { headers } = await call(attacker, slug)
    const names = ['nel', 'report-to', 'reporting-endpoints', 'strict-transport-security']
    expect(names.filter((name) => headers.has(name))).toEqual([])
    const path = `Path=/p/${attacker.ref}/`
    expect(headers.getSetCookie()).toEqual([
      `a=b; HttpOnly; ${path}`,
      `c=d; Expires=Wed, 21 Oct 2026 07:28:00 GMT; ${path}`,
    ])
  })

  it('with a header of its answer that is one of ours', async () => {
    const { slug } = await putFunction(
      attacker.ref,
      serve(
        `try { return new Response('x', { headers: { 'x-a': 'b\\r\\nset-cookie: c=d' } }) } catch { return new Response('refused') }`,
      ),
    )
    expect((await call(attacker, slug)).text).toBe('refused')
  })
})
