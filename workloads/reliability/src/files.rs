//! Tests with hostile input: files, names and symbols.

use crate::suite::Suite;

const fn suite(programs: &'static [&'static str], tests: &'static [&'static str]) -> Suite {
    Suite { programs, tests }
}

const LIVE: &[&str] = &["--test", "live"];
const UNIT: &[&str] = &["--lib"];

pub(crate) const PARSERS: &[Suite] = &[suite(
    LIVE,
    &["files_are_parsed_without_privileges", "the_recorder_parses_nothing_itself", "a_parser_that_dies_costs_one_file"],
)];

pub(crate) const TRAPS: &[Suite] = &[
    suite(
        LIVE,
        &[
            "strange_tables_are_refused",
            "files_mounted_over_a_table_are_refused",
            "strange_dumps_are_refused",
            "broken_dumps_have_names_up_to_there",
            "files_that_are_no_programs_are_not_kept",
            "reports_open_files_only",
        ],
    ),
    suite(
        UNIT,
        &[
            "owners_are_checked",
            "links_stay_below_the_root",
            "only_lines_of_a_table_are_taken",
            "large_tables_are_refused",
            "there_is_an_end_to_what_is_taken",
            "only_the_mapped_regular_file",
            "lying_files",
            "only_what_is_needed_is_opened",
        ],
    ),
];

pub(crate) const SECRETS: &[Suite] = &[
    suite(LIVE, &["secrets_are_zeroed", "replaced_programs_are_kept", "privileged_programs_keep_their_stacks"]),
    suite(
        &["--test", "recording"],
        &[
            "pointers_stay_and_the_rest_is_zero",
            "red_zones_are_scrubbed",
            "words_of_32_bit_code_have_four_bytes",
            "parts_of_words_do_not_pass",
            "both_stacks_of_a_handler_are_scrubbed",
            "chains_are_scrubbed",
            "anything_is_scrubbed_by_the_rule",
        ],
    ),
];

pub(crate) const OUTPUTS: &[Suite] = &[suite(
    UNIT,
    &[
        "what_others_planted_is_refused",
        "links_to_files_are_not_followed",
        "outputs_are_private",
        "directories_are_held",
        "links_of_others_to_directories_are_refused",
        "what_is_written_in_steps_is_private",
        "planted_links_are_not_followed",
        "experiments_are_private",
        "what_was_kept_aside_stays",
        "outputs_are_whole_or_gone",
    ],
)];

pub(crate) const NAMES: &[Suite] = &[
    suite(
        &["--test", "hostile"],
        &[
            "terminal_shows_names",
            "experiments_text_shows_names",
            "json_gives_names_back",
            "folded_keeps_lines_and_frames",
            "svg_is_well_formed",
            "page_keeps_its_tags",
            "markdown_keeps_lines_and_cells",
            "tables_show_names",
            "json_of_tables_gives_names_back",
            "pages_of_tables_keep_their_tags",
            "svg_of_differences_is_well_formed",
            "any_name_is_kept_whole",
        ],
    ),
    suite(
        &["--test", "browser"],
        &["hostile_names_run_nothing", "hostile_names_run_nothing_in_tables", "foreign_scripts_are_refused"],
    ),
    suite(UNIT, &["words_are_escaped"]),
];

pub(crate) const SYMBOLS: &[Suite] =
    &[suite(UNIT, &["hostile_symbols_are_bounded"]), suite(&["--test", "memory"], &["hostile_files_are_bounded"])];
