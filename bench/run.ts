import { describeFailure } from '../dev/lifetime.ts'
import { branches } from './branches.ts'
import { deploy } from './deploy.ts'
import { withEnvironment } from './environment.ts'
import { fleet } from './fleet.ts'
import { growth } from './growth.ts'
import { invoke } from './invoke.ts'
import { lists } from './lists.ts'
import { neighbours } from './neighbours.ts'
import { overhead } from './overhead.ts'
import { programs } from './programs.ts'
import { ratelimit } from './ratelimit.ts'
import { openReport } from './report.ts'
import { sql } from './sql.ts'
import { steady } from './steady.ts'
import { storage } from './storage.ts'
import { webhooks } from './webhooks.ts'

const BENCHMARKS = {
  overhead,
  ratelimit,
  lists,
  growth,
  webhooks,
  storage,
  sql,
  branches,
  neighbours,
  programs,
  fleet,
  deploy,
  invoke,
  steady,
}
type Name = keyof typeof BENCHMARKS

const names = Object.keys(BENCHMARKS) as Name[]
const isName = (text: string): text is Name => names.some((name) => name === text)

async function run(wanted: string[]): Promise<number> {
  const chosen = wanted.filter(isName)
  if (chosen.length === 0 || chosen.length < wanted.length) {
    console.error(`Usage: npm run bench -- ${names.join('|')}`)
    return 2
  }
  const report = openReport()
  for (const name of chosen) await withEnvironment((environment) => BENCHMARKS[name](environment, report))
  return report.failed ? 1 : 0
}

process.exitCode = await run(process.argv.slice(2)).catch((error) => {
  console.error(describeFailure(error))
  return 1
})
