import { PostgrestClient } from '@supabase/postgrest-js'
import { expect } from 'vitest'
import { baseUrl, newOrganization } from './api.ts'
import { runSql } from './projects.ts'
import { newStorage } from './storage.ts'
import { signerOf } from './storage-http.ts'

/** A project with tables, and its Data API as callers see it. */
export async function newDataApi(definition: string) {
  const organization = await newOrganization()
  const project = await newStorage(organization)
  const { ref, keys } = project
  const url = new URL(`/p/${ref}/rest/v1`, baseUrl).href
  const sql = async (query: string) => {
    const { status, body } = await runSql(organization.owner, ref, query)
    expect([status, body.message]).toEqual([201, undefined])
    return body
  }
  await sql(definition)
  const send = (key: string | undefined, path: string, init: RequestInit = {}) =>
    fetch(`${url}${path}`, { ...init, headers: { ...(key && { apikey: key }), ...(init.headers as object) } })
  return {
    ...{ project, organization, ref, url, keys, sql, send },
    /** A client of the library that applications use. */
    clientOf: (key: string, headers: Record<string, string> = {}) =>
      new PostgrestClient(url, { headers: { apikey: key, authorization: `Bearer ${key}`, ...headers } }),
    /** Signs a token for a user of the role `authenticated`. */
    tokenOf: async (user: string) => (await signerOf(project)).user(user),
    /** Sends JSON and returns the status and the body. */
    async json(path: string, init: RequestInit = {}, key = keys.service) {
      const response = await send(key, path, init)
      const text = await response.text()
      const { status, statusText, headers } = response
      return { status, statusText, headers, body: text === '' ? undefined : JSON.parse(text) }
    },
  }
}
export type TestDataApi = Awaited<ReturnType<typeof newDataApi>>

/** A write of JSON with these preferences. */
export const writeOf = (method: string, body: unknown, prefer = 'return=representation'): RequestInit => ({
  ...{ method, body: JSON.stringify(body) },
  headers: { 'content-type': 'application/json', prefer },
})
