import * as z from 'zod'
import { HOSTNAME_STATUSES } from '../../../model/tables/index.ts'
import { Hostname, VanitySubdomain } from './domain-names.ts'

export const NewVanitySubdomain = z.object({ vanity_subdomain: VanitySubdomain }).meta({ id: 'NewVanitySubdomain' })

export const VanitySubdomainConfig = z
  .object({
    status: z.enum(['not-used', 'custom-domain-used', 'active']),
    custom_domain: z.string().optional().meta({ description: 'The full host name, such as acme.example.com' }),
  })
  .meta({ id: 'VanitySubdomainConfig' })

export const Availability = z.object({ available: z.boolean() }).meta({ id: 'VanitySubdomainAvailability' })

export const ActiveSubdomain = z.object({ custom_domain: z.string() }).meta({ id: 'ActiveVanitySubdomain' })

export const NewCustomHostname = z.object({ custom_hostname: Hostname }).meta({ id: 'NewCustomHostname' })

export const CustomHostnameConfig = z
  .object({
    status: z.enum(HOSTNAME_STATUSES),
    custom_hostname: z.string(),
    data: z.object({
      success: z.boolean(),
      errors: z.array(z.unknown()),
      messages: z.array(z.unknown()),
      result: z.object({
        id: z.uuid(),
        hostname: z.string(),
        ssl: z
          .object({
            status: z.enum(['pending_validation', 'external']),
            validation_records: z.array(z.object({ txt_name: z.string(), txt_value: z.string() })),
            validation_errors: z.array(z.object({ message: z.string() })).optional(),
          })
          .meta({ description: 'Certificates are managed by the TLS proxy in front of this installation' }),
        ownership_verification: z
          .object({ type: z.string().optional(), name: z.string().optional(), value: z.string().optional() })
          .meta({ description: 'The record that proves ownership; empty once verified' }),
        custom_origin_server: z.string().meta({ description: 'The host of which the hostname must be an alias' }),
        verification_errors: z.array(z.string()).optional(),
        status: z.enum(['pending', 'active']),
      }),
    }),
  })
  .meta({ id: 'CustomHostnameConfig' })

export const RemoveHostnameQuery = z.object({
  remove_addon: z
    .stringbool()
    .optional()
    .meta({ description: 'Accepted, without effect: there is no paid add-on on this installation' }),
})
