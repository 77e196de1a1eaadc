import { databaseProblem } from '../database-problem.ts'
import { describeFailure } from '../lifetime.ts'
import { openControlDatabase } from '../seed.ts'
import { targetDatabaseUrl } from '../target.ts'
import { readCommand, readHelp } from './commands.ts'

const HINT = process.env.DATABASE_URL
  ? 'Its address is that of DATABASE_URL.'
  : 'If `npm start` was given PILOTHOUSE_DATA, give it here too.'

/** `npm run admin -- <noun> <verb> <arguments> --options`: runs a command that has no endpoint, directly on the control database. */
async function main(): Promise<void> {
  const argv = process.argv.slice(2)
  const help = readHelp(argv)
  if (help !== undefined) {
    console.log(help)
    return
  }
  const run = readCommand(argv)
  const { db, close } = openControlDatabase(await targetDatabaseUrl(process.env))
  try {
    const { text, exitCode } = await run(db)
    console.log(text)
    process.exitCode = exitCode
  } catch (error) {
    throw databaseProblem(error, HINT)
  } finally {
    await close()
  }
}

main().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
