import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { NICE } from '../../dev/child-process.ts'
import { as } from '../support/api.ts'
import { deploy } from '../support/deploys.ts'
import { type Machine, newMachine, type Running, stop, stopGroup, WAIT } from '../support/machine.ts'
import { parseOpenMetrics } from '../support/openmetrics.ts'
import { newProject } from '../support/projects.ts'

const METRICS_TOKEN = 'metrics-token-of-this-machine-0123456789'

let machine: Machine
beforeAll(async () => {
  machine = await newMachine({ METRICS_TOKEN }, inject('begun'), { isGroupLeader: true })
})
afterAll(() => machine.dispose())

/** Starts work that is still under way at the end: a database that comes up, a function that is built. */
async function beginWork() {
  const { base_url, access_token, organization_slug } = machine.credentials()
  const owner = as(access_token, {}, base_url)
  const body = { name: crypto.randomUUID(), organization_slug, db_pass: 'correct-horse' }
  const { status, body: project } = await owner.post('/v1/projects', body)
  expect(status).toBe(201)
  const form = new FormData()
  form.set('metadata', JSON.stringify({ entrypoint_path: 'index.ts' }))
  form.set('file', new File(['Deno.serve(() => new Response())'], 'index.ts'))
  void fetch(`${base_url}/v1/projects/${project.ref}/functions/deploy?slug=hello`, {
    method: 'POST',
    headers: { authorization: `Bearer ${access_token}` },
    body: form,
  }).catch(() => {})
}

/**
 * Waits for the first process of programs, which starts after the API is ready and has a low priority once it is ready itself.
 * Polls seldom: a look at all processes takes processor time from the start.
 */
const untilProgramsRun = ({ child }: Running) =>
  vi.waitFor(
    async () => {
      const { stdout } = await promisify(execFile)('ps', ['-A', '-o', 'ppid=', '-o', 'nice='])
      const processes = stdout.split('\n').map((line) => line.trim().split(/\s+/).map(Number))
      expect(processes).toContainEqual([child.pid, NICE.programs])
    },
    { ...WAIT, interval: 200 },
  )

describe('the metrics of npm start', () => {
  it('report the memory of each kind of process, of the builder after the first build', async () => {
    await machine.started()
    const { base_url, access_token, organization_slug: slug } = machine.credentials()
    const owner = as(access_token, {}, base_url)
    const memory = async (process: string) => {
      const response = await fetch(new URL('/metrics', base_url), {
        headers: { authorization: `Bearer ${METRICS_TOKEN}` },
      })
      return parseOpenMetrics(await response.text()).sum('pilothouse_process_resident_memory_bytes', { process })
    }
    const MiB = 1024 ** 2
    for (const process of ['api', 'bucket', 'supervisor']) {
      expect(await memory(process), process).toBeGreaterThan(10 * MiB)
    }
    // The first process of programs starts after the API is ready.
    await vi.waitFor(async () => expect(await memory('programs')).toBeGreaterThan(10 * MiB), WAIT)
    expect(await memory('builder')).toBe(0)
    await deploy(owner, await newProject({ owner, slug }))
    await vi.waitFor(async () => expect(await memory('builder')).toBeGreaterThan(10 * MiB), WAIT)
  })

  it('require a token that is long enough, which a refused start does not show', async () => {
    const refused = await newMachine({ METRICS_TOKEN: 'guessable' })
    const running = refused.start()
    await once(running.child, 'exit')
    expect(running.child.exitCode).toBe(1)
    expect(running.output()).toContain('METRICS_TOKEN cannot be used: must have at least 32 characters')
    expect(running.output()).not.toContain('guessable')
    await refused.dispose()
  })
})

describe('the log of npm start', () => {
  afterEach(() => machine.stopAll())

  it.each([
    ['a SIGTERM', 'SIGTERM', stop],
    ['a SIGINT', 'SIGINT', stop],
    ['Ctrl-C in a terminal', 'SIGINT', stopGroup],
    ['the end of the terminal', 'SIGHUP', stopGroup],
  ] as const)('has a time on each line and reports no error at %s', async (_, signal, end) => {
    const running = await machine.running()
    await untilProgramsRun(running)
    await beginWork()
    expect(await end(running, signal)).toBe(0)
    const entries = running.lines().map((line) => JSON.parse(line))
    for (const { at } of entries) expect(at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    expect(entries.map(({ event }) => event)).toEqual(expect.arrayContaining(['started', 'request', 'project_created']))
    const problems = entries.filter(({ level }) => level !== 'info')
    expect(problems.map(({ event, error }) => `${event}: ${error}`)).toEqual([])
    expect(entries.at(-2)).toMatchObject({ event: 'stopping', signal })
    expect(entries.at(-1)).toMatchObject({ event: 'stopped' })
  })
})
