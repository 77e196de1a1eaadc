import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { listData } from '../../dev/data-folder.ts'
import { type Machine, newMachine } from '../support/machine.ts'

let machine: Machine
beforeAll(async () => {
  machine = await newMachine({}, inject('begun'))
})
afterAll(() => machine.dispose())

/** Runs `npm run dev` with a shell script in the place of wrangler. */
async function runDev(script: string) {
  const programs = join(machine.folder, 'programs')
  mkdirSync(programs, { recursive: true })
  writeFileSync(join(programs, 'wrangler'), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
  const env = { ...machine.env, PATH: `${programs}:${process.env.PATH}` }
  const child = spawn('node', ['dev/dev.ts'], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  child.stdout.on('data', (data: Buffer) => (output += data))
  await once(child, 'close')
  return { code: child.exitCode, output }
}

describe('npm run dev', () => {
  it('creates an owner, ends with the exit code of wrangler, and leaves only what a reset deletes', async () => {
    const { code, output } = await runDev('exit 3')
    expect(code).toBe(3)
    expect(output).toContain(join(machine.folder, 'credentials.json'))
    expect(machine.credentials()).toMatchObject({
      base_url: `http://127.0.0.1:${machine.env.PORT}`,
      access_token: expect.stringMatching(/^sbp_/),
    })
    expect(statSync(join(machine.folder, 'dev')).mode & 0o777).toBe(0o700)
    expect(await listData(machine.folder)).toEqual(expect.arrayContaining(['dev', 'dev.vars', 'mcp.json']))
  })

  it.each([
    ['fails if wrangler is killed', 'kill -KILL $$', 1],
    ['succeeds if it has stopped wrangler itself', 'kill -TERM $PPID; exec sleep 300', 0],
  ])('%s', async (_, script, code) => {
    expect((await runDev(script)).code).toBe(code)
  })
})
