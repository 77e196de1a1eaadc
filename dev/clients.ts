import { writeFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { CLI_HOST } from './cli-port.ts'
import { CREDENTIALS } from './credentials.ts'
import type { Credentials } from './start-output.ts'

const PROFILE = 'supabase-profile.yaml'
const MCP = 'mcp.json'

/** Writes the configuration files for the `supabase` CLI and MCP clients. */
export async function saveClients(folder: string, credentials: Credentials, vars: Record<string, string | undefined>) {
  await writeFile(join(folder, PROFILE), profileOf(credentials, vars))
  await writeFile(join(folder, MCP), `${JSON.stringify(mcpOf(credentials), null, 2)}\n`, { mode: 0o600 })
}

function profileOf({ base_url }: Credentials, vars: Record<string, string | undefined>): string {
  const profile = {
    name: 'pilothouse',
    api_url: base_url,
    dashboard_url: base_url,
    docs_url: `${base_url}/docs`,
    project_host: vars.PROJECT_DOMAIN || 'localhost',
    ...poolerHostOf(vars),
  }
  return Object.entries(profile)
    .map(([key, value]) => `${key}: ${JSON.stringify(value)}\n`)
    .join('')
}

/** The CLI accepts a database's address only below this domain. Without a name, the CLI must be given the address itself. */
function poolerHostOf(vars: Record<string, string | undefined>): { pooler_host?: string } {
  const host = vars.DATABASE_DOMAIN || vars.DATABASE_HOST || ''
  if (host === CLI_HOST) return { pooler_host: CLI_HOST }
  if (isIP(host) > 0) return {}
  return { pooler_host: host.split('.').slice(-2).join('.') }
}

const mcpOf = ({ base_url, access_token }: Credentials) => ({
  mcpServers: {
    pilothouse: {
      command: 'npx',
      args: ['-y', '@supabase/mcp-server-supabase', '--api-url', base_url],
      env: { SUPABASE_ACCESS_TOKEN: access_token },
    },
  },
})

/** Instructions that connect each client to this installation; secrets stay in the files. */
export function clientsText(folder: string, { base_url }: Credentials): string {
  const [credentials, profile, mcp] = [CREDENTIALS, PROFILE, MCP].map((name) => join(folder, name))
  return `Your clients:

supabase CLI
  export SUPABASE_PROFILE='${profile}' SUPABASE_ACCESS_TOKEN=$(node -p "require('${credentials}').access_token")

MCP: give your client the configuration in ${mcp}

Terraform
  provider "supabase" {
    endpoint     = "${base_url}"
    access_token = jsondecode(file("${credentials}")).access_token
  }

supabase-js (data, storage and functions; the keys of a project are in ${base_url}/v1/projects/<ref>/api-keys?reveal=true)
  const supabase = createClient('${base_url}/p/<ref>', '<key>')
`
}
