//! Odd files: each is read right, or ends with an error that names the file, the place and what is wrong.
//!
//! A case is a file, settings, and what must come. Rows are written `1¦a=x¦n#0.5§0¦a=y¦n?`: a label and features, with
//! `§` between rows. `a=x` is the category x of the column a, `n#0.5` the number of the column n, `n?` its missing
//! value; `7:0.5` is a feature of libsvm, and `u^x:2` the feature x of vw's namespace u.

mod arrow_files;
mod csv_files;
mod json_files;
mod libffm_files;
mod libsvm_files;
mod packed_files;
mod parquet_files;
mod run;
mod stranger_files;
mod vw_files;

use self::run::{Case, check};

#[test]
fn odd_files_are_read_right_or_refused_by_name() {
    let sets: [fn() -> Vec<Case>; 9] = [
        libsvm_files::cases,
        libffm_files::cases,
        csv_files::cases,
        json_files::cases,
        vw_files::cases,
        packed_files::cases,
        parquet_files::cases,
        arrow_files::cases,
        stranger_files::cases,
    ];
    let cases: Vec<Case> = sets.iter().flat_map(|set| set()).collect();
    let different: std::collections::HashSet<_> =
        cases.iter().map(|case| (&case.name, &case.bytes, case.settings)).collect();
    assert_eq!(different.len(), cases.len(), "each file is another");
    assert!(cases.len() >= 200, "{}", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(wrong.is_empty(), "{} of {} files:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
