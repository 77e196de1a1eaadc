import { beforeAll, expect, inject, it } from 'vitest'
import { baseUrl, newOrganization } from '../../support/api.ts'
import { putFunction } from '../../support/functions.ts'
import { newStorage, type TestStorage } from '../../support/storage.ts'

let project: TestStorage
let other: TestStorage
beforeAll(async () => {
  project = await newStorage(await newOrganization())
  other = await newStorage(project.organization)
})

async function runProgram({ ref }: TestStorage, body: string) {
  const { slug } = await putFunction(ref, `Deno.serve(async () => { ${body} })`)
  return (await fetch(new URL(`/p/${ref}/functions/v1/${slug}`, baseUrl))).json()
}

it('no name leads to a port of the installation, although development allows this machine', async () => {
  const { endpoint, openPort } = inject('s3')
  const { port } = new URL(endpoint)
  const hosts = ['127.0.0.1', 'localhost', 'localhost.', '[::1]', 'a.localhost', 'another.example.com']
  const urls = [
    ...hosts.map((host) => `http://${host}:${port}/`),
    `http://127.0.0.1:${openPort}/cdn-cgi/local/r2/public/pilothouse/any`,
    `http://127.0.0.1:${new URL(inject('controlUrl')).port}/`,
  ]
  const messages = await runProgram(
    project,
    `const messages = []
    for (const url of ${JSON.stringify(urls)}) messages.push(await fetch(url).then(() => 'reached', (error) => error.message))
    return Response.json(messages)`,
  )
  expect(messages).toEqual(urls.map(() => 'address not allowed: it belongs to the installation'))
})

it("requests without a token from a project's programs count only for that project", async () => {
  const asking = (times: number) => `const statuses = []
    for (let n = 0; n < ${times}; n++) statuses.push((await fetch(Deno.env.get('SUPABASE_URL') + '/functions/v1/f-none')).status)
    return Response.json(statuses)`
  expect(await runProgram(project, asking(125))).toContain(429)
  expect(await runProgram(other, asking(1))).toEqual([404])
})
