import { readCommand } from './admin/commands.ts'
import { describeFailure } from './lifetime.ts'
import { openControlDatabase } from './seed.ts'
import { targetDatabaseUrl } from './target.ts'

/** `npm run admin -- <noun> <verb> <arguments> --options`: what has no endpoint, straight on the control database. */
async function main(): Promise<void> {
  const run = readCommand(process.argv.slice(2))
  const { db, close } = openControlDatabase(await targetDatabaseUrl(process.env))
  try {
    const { text, exitCode } = await run(db)
    console.log(text)
    process.exitCode = exitCode
  } finally {
    await close()
  }
}

main().catch((error) => {
  console.error(describeFailure(error))
  process.exitCode = 1
})
