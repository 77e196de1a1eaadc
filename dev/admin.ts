import { readCommand } from './admin/commands.ts'
import { describeFailure } from './lifetime.ts'
import { openControlDatabase } from './seed.ts'
import { errorCode, StartError } from './start-error.ts'
import { targetDatabaseUrl } from './target.ts'

const WHERE = 'is `npm start` running? If it was given POSTGRES_PORT or PILOTHOUSE_DATA, give them here too.'

const isRefused = (error: unknown): boolean =>
  error instanceof Error && (errorCode(error) === 'ECONNREFUSED' || isRefused(error.cause))

/** `npm run admin -- <noun> <verb> <arguments> --options`: what has no endpoint, straight on the control database. */
async function main(): Promise<void> {
  const run = readCommand(process.argv.slice(2))
  const { db, close } = openControlDatabase(await targetDatabaseUrl(process.env))
  try {
    const { text, exitCode } = await run(db)
    console.log(text)
    process.exitCode = exitCode
  } catch (error) {
    throw isRefused(error) ? new StartError(`Cannot reach the database: ${WHERE}`) : error
  } finally {
    await close()
  }
}

main().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
