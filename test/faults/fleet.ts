import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { guardChildren } from '../../dev/guard-children.ts'
import { openFleet } from './fleet/installation.ts'
import { playFleet } from './fleet/play.ts'

/**
 * Kills the daemon of a host, its servers and the API while owners create, branch, pause, resize, back up and
 * restore, and then checks that every project is as the API says and has all acknowledged data.
 */
const HELP =
  'node test/faults/fleet.ts [--kills N] [--owners N] [--seed S]   by default 20 kills, 3 owners and a new seed'
const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '20' },
    owners: { type: 'string', default: '3' },
    seed: { type: 'string' },
    help: { type: 'boolean' },
  },
})
if (values.help) {
  console.log(HELP)
  process.exit(0)
}
const seed = Number(values.seed ?? Date.now() % 1_000_000)
guardChildren()
const folder = mkdtempSync(join(tmpdir(), 'pilothouse-fleet-'))
const fleet = await openFleet(folder)
try {
  console.log(`${values.kills} kills, seed ${seed}`)
  const { problems, settledMs } = await playFleet(fleet, {
    seed,
    kills: Number(values.kills),
    owners: Number(values.owners),
    onNote: (text) => console.log(`${new Date().toISOString().slice(11, 23)} ${text}`),
  })
  console.log(JSON.stringify({ seed, settledMs, problems: problems.length }))
  for (const problem of problems) console.error(problem)
  process.exitCode = problems.length === 0 ? 0 : 1
} finally {
  await fleet.stop()
  rmSync(folder, { recursive: true, force: true })
}
process.exit()
