interface HostAddress {
  url: string
  key: string
}

interface Call {
  body?: unknown
  headers?: Record<string, string>
}

/** Calls the API of a host. The response to a mutation that outlasts its request is its outcome. */
export async function callHost(host: HostAddress, method: string, path: string, call: Call = {}): Promise<Response> {
  const { body, headers } = call
  const send = (to: string, init: RequestInit) => {
    const authorization = `Bearer ${host.key}`
    return fetch(`${host.url}/host/v1${to}`, { ...init, headers: { authorization, ...headers } })
  }
  let response = await send(path, { method, ...(body !== undefined && { body: JSON.stringify(body) }) })
  while (response.status === 202) {
    const { operation } = (await response.json()) as { operation: string }
    response = await send(`/operations/${operation}`, {})
  }
  return response
}

/** Headers with which Neon's driver requests each row as an array of text, the only format that the host has. */
export const ROWS_OF_TEXT = { 'neon-raw-text-output': 'true', 'neon-array-mode': 'true' }
