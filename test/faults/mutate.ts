import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { startInstance } from './cluster.ts'
import { MUTANTS, type Mutant } from './mutants.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PARALLEL = 2
const SECONDS_MAX = 600

const HELP = 'node test/faults/mutate.ts [--only NAME]   removes one guard at a time: a test must fail without it'
const { values } = parseArgs({ options: { only: { type: 'string', default: '' }, help: { type: 'boolean' } } })
if (values.help) {
  console.log(HELP)
  process.exit(0)
}

interface Verdict {
  mutant: Mutant
  caught: boolean
  evidence: string
}

const RUN = ['--import', './test/faults/mutate-hook.ts', 'test/faults/run.ts']
const VITEST = ['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/faults/mutate.config.ts']
const COMMANDS = {
  simulation: [...RUN, '--brief', '--until-broken', '--seeds', '250'],
  stress: [...RUN, '--stress'],
  sender: [...VITEST, '--reporter', 'tap-flat', 'test/outbound/webhooks/sender.test.ts'],
}
/** Matches a broken oracle or a failed test. */
const NOTICED = /^(O\d+ broken:|not ok) .*$/m

/** Runs the tests on a source without the guard: they must fail, and for the expected reason. */
async function testWithout(mutant: Mutant, adminUrl: string): Promise<Verdict> {
  const { code, output } = await run(COMMANDS[mutant.by], { FAULTS_MUTANT: mutant.name, FAULTS_ADMIN_URL: adminUrl })
  const noticed = NOTICED.exec(output)?.[0]
  const evidence = noticed ?? output.trim().split('\n').at(-1) ?? ''
  return { mutant, caught: code === 1 && noticed !== undefined, evidence }
}

function run(command: readonly string[], env: NodeJS.ProcessEnv): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, command, {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const timer = setTimeout(() => child.kill(), SECONDS_MAX * 1000)
  let output = ''
  child.stdout.on('data', (text) => {
    output += text
  })
  child.stderr.on('data', (text) => {
    output += text
  })
  return new Promise((resolve) => {
    child.on('close', (code) => {
      clearTimeout(timer)
      resolve({ code, output })
    })
  })
}

function isGone({ file, find }: Mutant): boolean {
  return !readFileSync(join(ROOT, file), 'utf8').includes(find)
}

const chosen = MUTANTS.filter(({ name }) => name.includes(values.only))
if (chosen.length === 0) throw new Error(`no guard has ${values.only} in its name`)
const missing = chosen.filter(isGone)
for (const { name, file } of missing) console.log(`GONE      ${name}: ${file} no longer contains its text`)

// A test that always fails would prove every guard. The other commands have run with all guards before this one.
if (chosen.some(({ by }) => by === 'sender')) {
  const { code, output } = await run(COMMANDS.sender, {})
  if (code !== 0) throw new Error(`the tests of the sender fail with all guards:\n${output}`)
}

const postgres = await startInstance()
const waiting = chosen.filter((mutant) => !missing.includes(mutant))
const survivors: string[] = []
const work = async () => {
  for (let mutant = waiting.shift(); mutant; mutant = waiting.shift()) {
    const { caught, evidence } = await testWithout(mutant, postgres.url)
    if (!caught) survivors.push(mutant.name)
    console.log(`${caught ? 'caught  ' : 'SURVIVED'}  ${mutant.name.padEnd(60)}${evidence.slice(0, 100)}`)
  }
}
await Promise.all(Array.from({ length: PARALLEL }, work))
await postgres.stop()
console.log(`${chosen.length - missing.length - survivors.length} of ${chosen.length} guards are proven necessary`)
process.exitCode = survivors.length + missing.length > 0 ? 1 : 0
