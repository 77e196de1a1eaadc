import { describeFailure } from '../dev/lifetime.ts'
import { branches } from './branches.ts'
import { dataApi } from './data-api.ts'
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
import { start } from './start.ts'
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
  'data-api': dataApi,
  branches,
  neighbours,
  programs,
  fleet,
  deploy,
  invoke,
  steady,
}
/** These start installations of their own. */
const ALONE = { start }

type Name = keyof typeof BENCHMARKS
const isName = (text: string): text is Name => Object.hasOwn(BENCHMARKS, text)
const isAlone = (text: string): text is keyof typeof ALONE => Object.hasOwn(ALONE, text)

async function run(wanted: string[]): Promise<number> {
  const chosen = wanted.filter((name) => isName(name) || isAlone(name))
  if (chosen.length === 0 || chosen.length < wanted.length) {
    console.error(`Usage: npm run bench -- ${Object.keys({ ...BENCHMARKS, ...ALONE }).join('|')}`)
    return 2
  }
  const report = openReport()
  for (const name of chosen) {
    if (isAlone(name)) await ALONE[name](report)
    else await withEnvironment((environment) => BENCHMARKS[name](environment, report))
  }
  return report.failed ? 1 : 0
}

process.exitCode = await run(process.argv.slice(2)).catch((error) => {
  console.error(describeFailure(error))
  return 1
})
