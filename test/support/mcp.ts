import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { expect, onTestFinished } from 'vitest'

interface Options {
  baseUrl: string
  token: string
  features: string
}

/**
 * Starts Supabase's MCP server for one test; returns a function that calls its tools and returns their results, as
 * JSON.
 */
export async function startMcp({ baseUrl, token, features }: Options) {
  const args = ['--api-url', baseUrl, '--access-token', token, '--features', features]
  const server = spawn('node_modules/.bin/mcp-server-supabase', args, { stdio: ['pipe', 'pipe', 'ignore'] })
  onTestFinished(async () => {
    server.kill()
    if (server.exitCode === null && server.signalCode === null) await once(server, 'exit')
  })
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]()
  const write = (message: Record<string, unknown>) =>
    server.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  let id = 0
  const call = async (method: string, params: unknown) => {
    write({ id: ++id, method, params })
    return JSON.parse((await lines.next()).value ?? '{}').result
  }
  const clientInfo = { name: 'test', version: '1' }
  await call('initialize', { protocolVersion: '2025-03-26', capabilities: {}, clientInfo })
  write({ method: 'notifications/initialized' })
  return async (name: string, toolArguments: Record<string, unknown> = {}): Promise<string> => {
    const result = await call('tools/call', { name, arguments: toolArguments })
    expect(result.isError, `${name}: ${JSON.stringify(result)}`).toBeFalsy()
    return JSON.stringify(result)
  }
}
