import { readCommand } from './admin/commands.ts'
import { describeFailure } from './lifetime.ts'
import { openControlDatabase } from './seed.ts'
import { errorCode, StartError } from './start-error.ts'
import { targetDatabaseUrl } from './target.ts'

/** Another password is that of another installation. */
const UNREACHED: Record<string, string> = {
  ECONNREFUSED: 'Cannot reach the database: is `npm start` running?',
  '28P01': 'The database refuses the password: is it that of another installation?',
}
const HINT = 'If `npm start` was given PILOTHOUSE_DATA, give it here too.'

/** Drizzle wraps what the driver said. */
const unreached = (error: unknown): string | undefined =>
  error instanceof Error ? (UNREACHED[errorCode(error) ?? ''] ?? unreached(error.cause)) : undefined

/** `npm run admin -- <noun> <verb> <arguments> --options`: what has no endpoint, straight on the control database. */
async function main(): Promise<void> {
  const run = readCommand(process.argv.slice(2))
  const { db, close } = openControlDatabase(await targetDatabaseUrl(process.env))
  try {
    const { text, exitCode } = await run(db)
    console.log(text)
    process.exitCode = exitCode
  } catch (error) {
    const reason = unreached(error)
    throw reason ? new StartError(`${reason} ${HINT}`) : error
  } finally {
    await close()
  }
}

main().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
