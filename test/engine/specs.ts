import type pg from 'pg'

const PASSWORD = 'correct horse battery staple'
export const RUNNER_PASSWORD = 'a runner'

export const newRef = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => String.fromCharCode(97 + (byte % 26))).join('')

export const specOf = (ref: string) => ({ ref, password: PASSWORD, runnerPassword: RUNNER_PASSWORD })

export async function withClient<Value>(opening: Promise<pg.Client>, work: (client: pg.Client) => Promise<Value>) {
  const client = await opening
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
