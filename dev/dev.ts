import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tickEveryMinute } from './cron.ts'
import { describeFailure, openLifetime } from './lifetime.ts'
import { stepLine } from './report.ts'
import { startServices } from './services.ts'
import { readSettings } from './settings.ts'

/** The services of `npm start` under `wrangler dev`: slower, and it reloads when a file of src changes. */
const lifetime = openLifetime()

async function dev(): Promise<void> {
  const { folder, ports, baseUrl } = readSettings(process.env)
  const onStep = (name: string, ms: number) => console.log(stepLine(name, ms))
  const services = await lifetime.add(startServices({ folder, ports, baseUrl, durable: true, onStep }))
  const envFile = join(folder, 'dev.vars')
  const lines = Object.entries({ ...services.vars, ...services.secrets })
  await writeFile(envFile, lines.map(([name, value]) => `${name}='${value}'`).join('\n'), { mode: 0o600 })
  const args = ['dev', '--port', String(ports.api), '--env-file', envFile, '--persist-to', join(folder, 'dev')]
  const wrangler = spawn('wrangler', [...args, '--test-scheduled'], { stdio: 'inherit' })
  const cron = tickEveryMinute(() => fetch(`${baseUrl}/cdn-cgi/handler/scheduled`))
  // Ctrl-C reaches wrangler too; the services stop once it is gone.
  lifetime.onSignal(() => {})
  await once(wrangler, 'exit')
  cron.stop()
}

dev()
  .catch((error) => {
    console.error(describeFailure(error))
    process.exitCode = 1
  })
  .finally(() => lifetime.end())
